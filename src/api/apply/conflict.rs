//! Why an apply fails, in the words of a real server.

use super::fieldset::Path;
use super::managers::{Manager, Operation};
use crate::api::patch::go;
use crate::status::Status;

/// A field that somebody else owns and has set to something else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Who.
    pub manager: Manager,
    /// Which field.
    pub path: Path,
}

/// Why an apply failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The configuration is not one for this object: 400.
    #[error("{0}")]
    BadRequest(String),
    /// Others own some of its fields: 409.
    #[error("{}", message(.0))]
    Conflict(Vec<Conflict>),
    /// It does not fit the schema, or what is stored cannot be read: 500 without a reason.
    #[error("{0}")]
    Unclassified(String),
}

impl From<ApplyError> for Status {
    fn from(error: ApplyError) -> Status {
        let text = error.to_string();
        match error {
            ApplyError::BadRequest(_) => Status::bad_request(text),
            ApplyError::Unclassified(_) => Status::unclassified(text),
            ApplyError::Conflict(conflicts) => conflicts.iter().fold(Status::new(409, "Conflict", text), |status, conflict| {
                let message = format!("conflict with {}", print(&conflict.manager));
                status.cause("FieldManagerConflict", message, &conflict.path.to_string())
            }),
        }
    }
}

fn message(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", print(&only.manager), only.path);
    }
    let mut lines = Vec::with_capacity(conflicts.len() + 1);
    let mut last = None;
    for conflict in conflicts {
        if last != Some(&conflict.manager) {
            lines.push(format!("conflicts with {}:", print(&conflict.manager)));
            last = Some(&conflict.manager);
        }
        lines.push(format!("- {}", conflict.path));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

fn print(manager: &Manager) -> String {
    let mut text = go::quoted(&manager.name);
    if !manager.subresource.is_empty() {
        text.push_str(&format!(" with subresource {}", go::quoted(&manager.subresource)));
    }
    if manager.operation == Operation::Update {
        text.push_str(&format!(" using {}", manager.api_version));
    }
    text
}
