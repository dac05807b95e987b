//! What a person means by a kind: `deploy`, `deployments`, `Deployment`, `deployments.apps`, `deployments.v1.apps`, as kubectl takes
//! them. Where several groups have one, the one that discovery shows first is meant.

use std::sync::Arc;

use super::{Resource, Table};

impl Table {
    /// The resource that a word means, if it means one that is kept.
    pub fn resolve(&self, word: &str) -> Option<Arc<Resource>> {
        let word = word.to_lowercase();
        let (name, rest) = word.split_once('.').unwrap_or((&word, ""));
        let named = |resource: &&Arc<Resource>| {
            resource.is_stored()
                && (*resource.plural == *name
                    || *resource.singular == *name
                    || resource.kind.to_lowercase() == name
                    || resource.short_names.iter().any(|short| **short == *name))
        };
        let in_group = |resource: &&Arc<Resource>| {
            rest.is_empty()
                || *resource.group == *rest
                || rest.split_once('.').map_or(*resource.version == *rest && resource.group.is_empty(), |(version, group)| {
                    *resource.version == *version && *resource.group == *group
                })
        };
        // A plural before a short name: `sc` may be the one or the other of two custom kinds.
        let mut found: Vec<_> = self.resources.iter().filter(named).filter(in_group).collect();
        found.sort_by_key(|resource| *resource.plural != *name);
        found.first().map(|resource| (*resource).clone())
    }
}

#[cfg(test)]
mod tests {
    use crate::registry::Registry;

    #[test]
    fn a_kind_is_taken_by_all_the_names_that_kubectl_takes() {
        let table = Registry::new().table();
        for word in ["deploy", "deployment", "deployments", "Deployment", "deployments.apps", "deployments.v1.apps", "deploy.apps"] {
            let found = table.resolve(word).map(|resource| resource.qualified());
            assert_eq!(found.as_deref(), Some("deployments.apps"), "{word}");
        }
        assert_eq!(table.resolve("po").map(|r| r.qualified()).as_deref(), Some("pods"));
        assert_eq!(table.resolve("pods.v1").map(|r| r.qualified()).as_deref(), Some("pods"));
        assert_eq!(table.resolve("ev").map(|r| r.group.to_string()).as_deref(), Some(""), "the core group comes first");
        assert_eq!(table.resolve("hpa").map(|r| r.version.to_string()).as_deref(), Some("v2"), "the preferred version");
        assert!(table.resolve("deployments.batch").is_none() && table.resolve("nonsense").is_none());
        assert!(table.resolve("subjectaccessreviews").is_none(), "nothing of it is kept");
    }
}
