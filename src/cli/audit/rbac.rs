//! `usher audit rbac`: the smallest roles for what a user was seen to do, as YAML that can be applied, and in front of it, as a comment,
//! how they differ from what the user has now.

use clap::Args;
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};

use super::{Ask, document, encode};
use crate::audit::rbac::{granted, permissions};
use crate::cli::output::{self, Format, Ink, Screen};

pub(super) const EXAMPLES: &str = "Examples:
  usher audit rbac --user jane                                     the roles, and how they differ from what jane has
  usher audit rbac --user system:serviceaccount:ops:bot --any-name  for a program whose objects change their names
  usher audit rbac --user jane --only-allowed | kubectl apply -f -";

/// Write the smallest roles that allow what a user was seen to do.
#[derive(Debug, Args)]
pub struct Rbac {
    /// Whose: a user, or system:serviceaccount:NAMESPACE:NAME
    #[arg(long)]
    user: String,
    /// What the roles and bindings are called [default: made of the user's name]
    #[arg(long)]
    name: Option<String>,
    /// Not before: a time or so long ago (2d)
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Before: a time or so long ago
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Leave out what was forbidden
    #[arg(long)]
    only_allowed: bool,
    /// Allow every name where single objects were used
    #[arg(long)]
    any_name: bool,
    /// Take in what every authenticated user may do: discovery, health, reviews of oneself
    #[arg(long)]
    include_default: bool,
    #[command(flatten)]
    ask: Ask,
}

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

impl Rbac {
    pub(super) async fn run(self) -> Result<(), String> {
        let client = self.ask.reach.client().await?;
        let mut query = format!("user={}", encode(&self.user));
        for (key, value) in [("since", &self.since), ("until", &self.until), ("roleName", &self.name)] {
            if let Some(value) = value {
                query.push_str(&format!("&{key}={}", encode(value)));
            }
        }
        for (key, asked) in [("onlyAllowed", self.only_allowed), ("anyName", self.any_name), ("includeDefault", self.include_default)] {
            query.push_str(&format!("&{key}={asked}"));
        }
        let answer = document(&client, &format!("/usher/v1/rbac?{query}")).await?;
        let roles = answer["items"].as_array().cloned().unwrap_or_default();
        // What everybody has is not theirs to lose.
        let everybodys = |group: &str| matches!(group, "system:authenticated" | "system:serviceaccounts" | "system:unauthenticated");
        let groups = answer["groups"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let groups = groups.filter(|group| self.include_default || !everybodys(group)).map(str::to_owned).collect();
        let now = granted(&self.user, &groups, &everything(&client).await?);
        let diff = Differences::between(&now, &roles);
        match self.ask.output {
            Format::Human | Format::Yaml => {
                let screen = Screen::stdout();
                let documents: Vec<String> = roles.iter().map(crate::api::yaml::write).collect();
                let notes = answer["notes"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let notes: String = notes.map(|note| screen.paint(Ink::Bad, &format!("# Note: {note}.")) + "\n").collect();
                output::print(&format!("{}{notes}{}", diff.comment(&self.user, &screen), documents.join("---\n")))
            }
            format => format.write(&json!({"kind": "List", "apiVersion": "v1", "items": roles,
                "missing": diff.missing, "unused": diff.unused, "notes": answer["notes"]})),
        }
    }
}

/// All roles and bindings, each with its kind.
async fn everything(client: &kube::Client) -> Result<Vec<Value>, String> {
    let mut all = Vec::new();
    for (plural, kind) in
        [("clusterroles", "ClusterRole"), ("roles", "Role"), ("clusterrolebindings", "ClusterRoleBinding"), ("rolebindings", "RoleBinding")]
    {
        let mut list = document(client, &format!("{RBAC}/{plural}")).await?;
        for mut item in list["items"].as_array_mut().map(std::mem::take).unwrap_or_default() {
            item["kind"] = json!(kind);
            all.push(item);
        }
    }
    Ok(all)
}

/// What a user lacks, and what they have and do not use.
struct Differences {
    lines: Vec<(ChangeTag, String)>,
    missing: Vec<String>,
    unused: Vec<String>,
}

impl Differences {
    fn between(now: &[Value], wanted: &[Value]) -> Differences {
        let text = |roles: &[Value]| permissions(roles).into_iter().map(|line| line + "\n").collect::<String>();
        let (now, wanted) = (text(now), text(wanted));
        let diff = TextDiff::from_lines(&now, &wanted);
        let changes = diff.iter_all_changes();
        let lines: Vec<(ChangeTag, String)> = changes.map(|change| (change.tag(), change.value().trim_end().to_owned())).collect();
        let of = |tag: ChangeTag| lines.iter().filter(|line| line.0 == tag).map(|line| line.1.clone()).collect();
        Differences { missing: of(ChangeTag::Insert), unused: of(ChangeTag::Delete), lines }
    }

    fn comment(&self, user: &str, screen: &Screen) -> String {
        let mut out = format!("# What {user} has now (-), and what these roles give (+):\n");
        for (tag, line) in &self.lines {
            let (sign, ink) = match tag {
                ChangeTag::Equal => (' ', Ink::Faint),
                ChangeTag::Insert => ('+', Ink::Good),
                ChangeTag::Delete => ('-', Ink::Bad),
            };
            out.push_str(&screen.paint(ink, &format!("# {sign} {line}")));
            out.push('\n');
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_is_told_permission_by_permission_in_comments() {
        let role = |verbs: &[&str]| json!({"kind": "ClusterRole", "metadata": {"name": "x"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]});
        let diff = Differences::between(&[role(&["*", "get"])], &[role(&["get", "list"])]);
        assert_eq!(
            (diff.missing.as_slice(), diff.unused.as_slice()),
            (&["cluster: list pods".to_owned()][..], &["cluster: * pods".to_owned()][..])
        );
        let text = diff.comment("jane", &Screen { width: None, colour: false });
        assert!(text.lines().all(|line| line.starts_with('#')), "{text}");
        assert!(text.contains("# - cluster: * pods\n#   cluster: get pods\n# + cluster: list pods\n"), "{text}");
    }
}
