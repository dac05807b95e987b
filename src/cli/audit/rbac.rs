//! `usher audit rbac`: the smallest roles for what a user was seen to do, as YAML that can be applied, and in front of it, as a comment,
//! how they differ from what the user has now.

use std::collections::BTreeSet;

use clap::Args;
use serde_json::{Value, json};

use super::{Ask, document, encode};
use crate::audit::permissions::{covers, granted, permissions};
use crate::cli::output::{self, Format, Ink, Screen};

pub(super) const EXAMPLES: &str = "Examples:
  usher audit rbac --user jane                                       roles, and what jane has now
  usher audit rbac --user system:serviceaccount:ops:bot --any-name   where names change
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
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    since: Option<String>,
    /// Before: a time or so long ago
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
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
        let is_everybodys = |group: &str| matches!(group, "system:authenticated" | "system:serviceaccounts" | "system:unauthenticated");
        let groups = answer["groups"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        let (everybodys, own): (BTreeSet<String>, BTreeSet<String>) =
            groups.partition(|group| !self.include_default && is_everybodys(group));
        // Whoever may not read roles gets those that follow from the log all the same.
        let diff = everything(&client).await.map(|now| {
            let [own, everybodys] = [granted(&self.user, &own, &now), granted("", &everybodys, &now)];
            Differences::between(&own, &everybodys, &roles)
        });
        match self.ask.output {
            Format::Human | Format::Yaml => {
                let screen = Screen::stdout();
                let documents: Vec<String> = roles.iter().map(crate::api::yaml::write).collect();
                let notes = answer["notes"].as_array().into_iter().flatten().filter_map(Value::as_str);
                let notes: String = notes.map(|note| screen.paint(Ink::Bad, &format!("# Note: {note}.")) + "\n").collect();
                let comment = match &diff {
                    Ok(diff) => diff.comment(&self.user, &screen),
                    Err(why) => format!("# What {} has now is not known: {}.\n", self.user, output::harmless(why).replace('\n', " ")),
                };
                output::print(&format!("{comment}{notes}{}", documents.join("---\n")))
            }
            format => {
                let mut list = json!({"kind": "List", "apiVersion": "v1", "items": roles, "notes": answer["notes"]});
                match diff {
                    Ok(diff) => (list["missing"], list["unused"]) = (json!(diff.missing), json!(diff.unused)),
                    Err(why) => output::note(&format!("usher: what {} has now is not known: {}\n", self.user, output::harmless(&why))),
                }
                format.write(&list)
            }
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

/// What becomes of a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sign {
    Both,
    Missing,
    Unused,
}

/// What a user lacks, and what they have and do not use.
struct Differences {
    lines: Vec<(Sign, String)>,
    missing: Vec<String>,
    unused: Vec<String>,
}

impl Differences {
    /// Between what somebody has for themselves, what everybody has, and what is wanted.
    fn between(own: &[Value], everybodys: &[Value], wanted: &[Value]) -> Differences {
        let (now, everybodys, wanted) = (permissions(own), permissions(everybodys), permissions(wanted));
        let mut lines: Vec<(Sign, String)> = Vec::new();
        for line in now.union(&wanted) {
            let wider = || now.iter().chain(&everybodys).find(|given| covers(given, line));
            lines.push(match (now.contains(line), wanted.contains(line)) {
                (true, true) => (Sign::Both, line.clone()),
                (true, false) => (Sign::Unused, line.clone()),
                // What a wider one gives already is not missing.
                _ => match wider() {
                    Some(given) => (Sign::Both, format!("{line} (now by {given})")),
                    None => (Sign::Missing, line.clone()),
                },
            });
        }
        let of = |sign: Sign| lines.iter().filter(|line| line.0 == sign).map(|line| line.1.clone()).collect();
        Differences { missing: of(Sign::Missing), unused: of(Sign::Unused), lines }
    }

    fn comment(&self, user: &str, screen: &Screen) -> String {
        let mut out = format!("# What {user} has now and these roles leave out (-),\n# and what they add to it (+):\n");
        for (tag, line) in &self.lines {
            let (sign, ink) = match tag {
                Sign::Both => (' ', Ink::Faint),
                Sign::Missing => ('+', Ink::Good),
                Sign::Unused => ('-', Ink::Bad),
            };
            // What goes on in the next line is a comment there too.
            let room = Screen { width: screen.width.map(|width| width.saturating_sub(4)), colour: false };
            for (number, part) in output::hang(line, 4, &room).lines().enumerate() {
                let sign = if number == 0 { sign } else { ' ' };
                out.push_str(&screen.paint(ink, &format!("# {sign} {part}")));
                out.push('\n');
            }
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
        let diff = Differences::between(&[role(&["delete", "get"])], &[], &[role(&["get", "list"])]);
        assert_eq!(
            (diff.missing.as_slice(), diff.unused.as_slice()),
            (&["cluster: list pods".to_owned()][..], &["cluster: delete pods".to_owned()][..])
        );
        let text = diff.comment("jane", &Screen { width: None, colour: false });
        assert!(text.lines().all(|line| line.starts_with('#')), "{text}");
        assert!(text.contains("# - cluster: delete pods\n#   cluster: get pods\n# + cluster: list pods\n"), "{text}");
        let wider = Differences::between(&[role(&["*"])], &[], &[role(&["get"])]);
        assert_eq!((wider.missing.len(), wider.unused.as_slice()), (0, &["cluster: * pods".to_owned()][..]));
        assert!(wider.comment("jane", &Screen { width: None, colour: false }).contains("#   cluster: get pods (now by cluster: * pods)\n"));
    }

    #[test]
    fn what_everybody_has_is_not_missing_and_not_theirs_to_lose() {
        let role = |resource: &str| json!({"kind": "ClusterRole", "metadata": {"name": "x"}, "rules": [{"apiGroups": [""], "resources": [resource], "verbs": ["list"]}]});
        let diff = Differences::between(&[], &[role("services"), role("nodes")], &[role("services"), role("pods")]);
        assert_eq!((diff.missing.as_slice(), diff.unused.len()), (&["cluster: list pods".to_owned()][..], 0));
        let text = diff.comment("jane", &Screen { width: None, colour: false });
        assert!(text.contains("#   cluster: list services (now by cluster: list services)\n"), "{text}");
    }
}
