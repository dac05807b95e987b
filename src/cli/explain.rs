//! `usher explain`: the full story of a decision.

use std::fmt::Write as _;

use clap::Args;
use serde_json::Value;

use super::ask::{ask, named, path};
use super::client::{Reach, block_on};
use super::output::{Format, Ink, Screen, cut, hang, length, print, span, told};
use crate::audit::story::explain::{Explanation, Hop, Told};

pub(super) const EXAMPLES: &str = "Examples:
  usher explain 0d1fb1f4-70cc-4a2e-ae08-b39b0d5d2bbc   one request, by its Audit-ID
  usher explain 0d1fb1f4                               the same: the beginning will do
  usher explain deploy/web -n team                     the last write that somebody asked for
  usher explain deploy/web -n team --denied            the last write that was refused";

/// The longest value of an expression that is shown whole.
const LONGEST: usize = 100;

/// Annotations that say what the hops say.
const OWN: [&str; 4] =
    ["authorization.k8s.io/", "apiserver.latency.k8s.io/", ".webhook.admission.k8s.io/", "validation.policy.admission.k8s.io/"];

/// What to tell.
#[derive(Debug, Args)]
pub struct Explain {
    /// An Audit-ID or its beginning, or KIND/NAME
    #[arg(value_name = "AUDIT-ID|KIND/NAME", required = true, num_args = 1..=2)]
    what: Vec<String>,
    /// The object's namespace [default: that of the kubeconfig's context]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// The last write of the object that was refused
    #[arg(long)]
    denied: bool,
    /// The last write by anybody, also by a component
    #[arg(long)]
    any: bool,
    /// Also the plugins, policies and webhooks that had nothing to do
    #[arg(short, long)]
    verbose: bool,
    /// How the answer is written
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    reach: Reach,
}

impl Explain {
    /// Does it.
    pub fn run(self) -> Result<(), String> {
        block_on(async {
            let parts: Vec<&str> = ["explain"].into_iter().chain(named(&self.what)?).collect();
            let namespace = self.reach.namespace(self.namespace.as_deref()).await?;
            let (denied, any) = (self.denied.to_string(), self.any.to_string());
            let answer = ask(&self.reach, &path(&parts, &namespace, &[("denied", &denied), ("any", &any)])).await?;
            if self.output != Format::Human {
                return self.output.write(&answer);
            }
            let told: Explanation = told(answer)?;
            print(&render(&told, self.verbose, &Screen::stdout()))
        })
    }
}

fn render(told: &Explanation, verbose: bool, screen: &Screen) -> String {
    let mut out = String::new();
    let ink = match told.verdict.as_str() {
        "allowed" => Ink::Good,
        "under way" => Ink::Warning,
        _ => Ink::Bad,
    };
    let headline = format!("{}  {}", screen.paint(ink, &told.verdict.to_uppercase()), told.summary);
    let _ = writeln!(out, "{}", hang(&headline, length(&told.verdict) + 2, screen));
    let mut fact = |name: &str, value: String| {
        if !value.is_empty() {
            out.push_str(&hang(&format!("{}  {value}", screen.paint(Ink::Faint, &format!("{name:>10}"))), 12, screen));
        }
    };
    fact("request", format!("{} {}", told.verb, told.request_uri));
    fact("audit id", told.audit_id.clone());
    fact("user", [told.user.username.as_str(), &groups(&told.user.groups)].join(" ").trim().to_owned());
    if let Some(user) = &told.impersonated_user {
        fact("as", [user.username.as_str(), &groups(&user.groups)].join(" "));
    }
    fact("client", [told.user_agent.as_str(), &told.source_ips.join(", ")].join("  ").trim().to_owned());
    let received = told.received.map(|at| at.strftime("%Y-%m-%d %H:%M:%S%.6f").to_string()).unwrap_or_default();
    fact("received", format!("{received}, took {}", span(told.took)));
    fact("because of", told.cause.map(|cause| format!("the watch event of revision {cause}")).unwrap_or_default());
    fact("trace", told.trace_id.clone());
    // Who may not be somebody else is not asked what else they may. The right to create is asked for behind the right to the verb, where
    // both are needed.
    let is_asked = told.hops.iter().any(|hop| hop.hop == "authorize");
    let asks = |hop: &Hop| hop.hop == if is_asked { "authorize" } else { "impersonate" };
    let (first, last) = (told.hops.iter().position(asks), told.hops.iter().rposition(asks));
    // A log of another server has no hops, but what authorisation said.
    if told.authorization.is_some() && first.is_none() {
        let _ = writeln!(out, "\n{}", screen.paint(Ink::Heading, "may they"));
        granted(&mut out, told, screen);
        missing(&mut out, told, screen);
    }
    for (number, hop) in told.hops.iter().enumerate() {
        let shown: Vec<&Told> = hop.steps.iter().filter(|step| verbose || is_telling(step)).collect();
        let hidden = hop.steps.iter().filter(|step| !verbose && !is_telling(step));
        let silent: u64 = hidden.map(|step| step.detail.get("count").and_then(Value::as_u64).unwrap_or(1)).sum();
        let heading = screen.paint(Ink::Heading, if hop.title.is_empty() { &hop.hop } else { &hop.title });
        let silent = if silent > 0 { format!(" ({silent} more had nothing to say; -v names them)") } else { String::new() };
        let took = screen.paint(Ink::Faint, &format!("{}{silent}", known_span(hop.took)));
        out.push('\n');
        out.push_str(&hang(&format!("{heading} {took}"), 2, screen));
        for step in shown {
            tell(&mut out, step, screen);
        }
        if Some(number) == first {
            granted(&mut out, told, screen);
        }
        if Some(number) == last {
            missing(&mut out, told, screen);
        }
    }
    let _ = writeln!(out);
    if let Some(wrote) = &told.wrote {
        let what = if wrote.deleted { "removed" } else { "wrote" };
        let at = if wrote.revision == 0 { String::new() } else { format!(" at revision {}", wrote.revision) };
        let _ = writeln!(out, "{what} {} {}{at}", wrote.kind, wrote.name);
    }
    // What webhooks and policies noted in the event; what else stands there has been told.
    let noted = |(key, _): &(&String, &String)| !OWN.iter().any(|own| key.contains(own));
    for (key, value) in told.annotations.iter().filter(noted) {
        out.push_str(&hang(&format!("{} {key}: {value}", screen.paint(Ink::Faint, "noted:")), 7, screen));
    }
    for warning in &told.warnings {
        out.push_str(&hang(&format!("{} {warning}", screen.paint(Ink::Warning, "warned:")), 8, screen));
    }
    if let Some(response) = &told.response {
        // What the headline has said is not said again.
        let message = if told.summary.contains(&response.message) { "" } else { &response.message };
        let text = [response.reason.as_str(), message].join(" ");
        let code = screen.paint(Ink::of_code(response.code), &response.code.to_string());
        out.push_str(&hang(format!("answered {code} {}", text.trim()).trim_end(), 9, screen));
    }
    out
}

/// How long it took, where that is known.
fn known_span(took: u64) -> String {
    if took > 0 { span(took) } else { String::new() }
}

fn groups(groups: &[String]) -> String {
    if groups.is_empty() { String::new() } else { format!("({})", groups.join(", ")) }
}

/// Whether a step did more than let pass.
fn is_telling(step: &Told) -> bool {
    let is_plugin = step.kind == "plugin";
    step.verdict != "skipped" && !(is_plugin && step.verdict == "admitted")
}

fn tell(out: &mut String, step: &Told, screen: &Screen) {
    let ink = match step.verdict.as_str() {
        "allowed" | "matched" | "admitted" | "valid" => Ink::Good,
        "skipped" => Ink::Faint,
        "mutated" | "failed open" => Ink::Warning,
        verdict if verdict.starts_with("denied") || verdict == "refused" || verdict == "failed closed" => Ink::Bad,
        _ => Ink::Plain,
    };
    let round = step.round.filter(|round| *round > 0).map(|round| format!(" round {}", round + 1)).unwrap_or_default();
    let mut line = format!("  {:<13} {}{round} {}", step.kind, step.name, screen.paint(ink, &step.verdict));
    if !step.because.is_empty() {
        let _ = write!(line, ": {}", step.because);
    }
    if step.took > 0 {
        let _ = write!(line, "  {}", screen.paint(Ink::Faint, &span(step.took)));
    }
    out.push_str(&hang(&line, 16, screen));
    for change in &step.changes {
        let ink = match change.chars().next() {
            Some('+') => Ink::Good,
            Some('-') => Ink::Bad,
            _ => Ink::Warning,
        };
        out.push_str(&hang(&format!("      {}", screen.paint(ink, change)), 10, screen));
    }
    for part in &step.failed {
        out.push_str(&hang(&format!("      {} {part}", screen.paint(Ink::Bad, "false:")), 13, screen));
    }
    let (further, own): (Vec<_>, Vec<_>) = step.detail.iter().partition(|(name, _)| *name == "further");
    for (name, value) in own.into_iter().chain(further) {
        // What authorisation granted or missed is told below it.
        if step.kind != "authorizer" || !matches!(name.as_str(), "role" | "binding" | "needed" | "authorizer") {
            detail(out, 6, name, value, screen);
        }
    }
}

/// What else is known, one line each: the values of an expression, the rule of a role.
fn detail(out: &mut String, indent: usize, name: &str, value: &Value, screen: &Screen) {
    let label = screen.paint(Ink::Faint, &format!("{name}:"));
    match value {
        Value::Null => {}
        // What else a policy found wrong, each with its own expression.
        Value::Array(parts) if name == "further" => {
            for part in parts {
                let because = part["because"].as_str().unwrap_or_default();
                out.push_str(&hang(&format!("{:indent$}{} {because}", "", screen.paint(Ink::Faint, "also:")), indent + 2, screen));
                detail(out, indent + 2, "expression", &part["expression"], screen);
                detail(out, indent + 2, "values", &part["values"], screen);
            }
        }
        Value::Array(parts) if !parts.is_empty() && parts.iter().all(|part| part.get("expression").is_some()) => {
            let _ = writeln!(out, "{:indent$}{label}", "");
            for part in parts {
                // A whole object is there for programs; people want to see what it came to.
                let text = format!("{} = {}", part["expression"].as_str().unwrap_or_default(), cut(&part["value"].to_string(), LONGEST));
                let ink = if part["value"] == false { Ink::Bad } else { Ink::Plain };
                out.push_str(&hang(&format!("{:1$}{2}", "", indent + 2, screen.paint(ink, &text)), indent + 4, screen));
            }
        }
        Value::String(text) => {
            out.push_str(&hang(&format!("{:indent$}{label} {text}", ""), indent + 2, screen));
        }
        // What was passed over, and why: a word and a reason each.
        Value::Object(parts) if !parts.is_empty() && parts.values().all(Value::is_string) => {
            let parts: Vec<String> = parts.iter().map(|(key, why)| format!("{key} ({})", why.as_str().unwrap_or_default())).collect();
            out.push_str(&hang(&format!("{:indent$}{label} {}", "", parts.join(", ")), indent + 2, screen));
        }
        other => out.push_str(&hang(&format!("{:indent$}{label} {other}", ""), indent + 2, screen)),
    }
}

/// The role that allowed it.
fn granted(out: &mut String, told: &Explanation, screen: &Screen) {
    if let Some(found) = told.authorization.as_ref().filter(|found| !found.role.is_empty()) {
        out.push_str(&hang(&format!("      {} through {}", screen.paint(Ink::Good, &found.role), found.binding), 8, screen));
    }
}

/// The rule that would have.
fn missing(out: &mut String, told: &Explanation, screen: &Screen) {
    if let Some(missing) = told.authorization.as_ref().and_then(|found| found.missing.as_ref()) {
        out.push_str(&hang(&format!("      {} {}, with the rule", screen.paint(Ink::Bad, "missing:"), missing.scope), 8, screen));
        for line in crate::api::yaml::write(&Value::Array(vec![missing.rule.clone()])).lines() {
            let _ = writeln!(out, "        {line}");
        }
        let _ = writeln!(out, "      granted to {}", missing.subject);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::audit::story::permission::{Authorization, Missing};

    fn screen() -> Screen {
        Screen { width: None, colour: false }
    }

    #[test]
    fn a_denied_policy_shows_its_expression_and_the_values_in_it() {
        let detail = json!({"expression": "object.spec.replicas <= 5", "values": [{"expression": "object.spec.replicas", "value": 6}]});
        let policy = Told {
            kind: "policy".into(),
            name: "few".into(),
            verdict: "denied".into(),
            because: "too many".into(),
            failed: vec!["object.spec.replicas <= 5".into()],
            detail: detail.as_object().cloned().unwrap_or_default(),
            ..Told::default()
        };
        let plugin = Told { kind: "plugin".into(), name: "ResourceQuota".into(), verdict: "admitted".into(), ..Told::default() };
        let hop = Hop { hop: "validate".into(), title: "validating admission".into(), took: 5, steps: vec![plugin, policy] };
        let told = Explanation { verdict: "denied".into(), hops: vec![hop], ..Explanation::default() };
        let text = render(&told, false, &screen());
        assert!(text.contains("policy        few denied: too many"), "{text}");
        assert!(text.contains("expression: object.spec.replicas <= 5\n") && text.contains("object.spec.replicas = 6\n"), "{text}");
        assert!(text.contains("      false: object.spec.replicas <= 5\n"), "{text}");
        assert!(text.contains("(1 more had nothing to say; -v names them)") && !text.contains("ResourceQuota"), "{text}");
        assert!(render(&told, true, &screen()).contains("ResourceQuota admitted"));
    }

    #[test]
    fn a_missing_permission_is_told_as_the_rule_to_grant() {
        let missing = Missing {
            rule: json!({"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]}),
            scope: "a Role and a RoleBinding in the namespace team".into(),
            subject: "User bob".into(),
        };
        let authorization = Some(Authorization { decision: "forbid".into(), missing: Some(missing), ..Authorization::default() });
        let text = render(&Explanation { verdict: "denied".into(), authorization, ..Explanation::default() }, false, &screen());
        assert!(text.contains("missing: a Role and a RoleBinding in the namespace team, with the rule"), "{text}");
        assert!(text.contains("resources:\n          - pods\n") && text.contains("granted to User bob"), "{text}");
    }

    #[test]
    fn what_webhooks_and_policies_noted_is_told_and_what_the_hops_say_is_not_told_again() {
        let annotations = [
            ("authorization.k8s.io/decision", "allow"),
            ("mutation.webhook.admission.k8s.io/round_0_index_0", "{}"),
            ("hook.example.com/team", "a"),
        ];
        let annotations = annotations.map(|(key, value)| (key.to_owned(), value.to_owned())).into_iter().collect();
        let text = render(&Explanation { annotations, ..Explanation::default() }, false, &screen());
        assert!(text.contains("noted: hook.example.com/team: a\n") && text.matches("noted:").count() == 1, "{text}");
    }

    #[test]
    fn a_right_that_was_missing_besides_the_first_is_told_where_it_was_asked_for() {
        let step = |verdict: &str| Told { kind: "authorizer".into(), name: "RBAC".into(), verdict: verdict.into(), ..Told::default() };
        let hop = |name: &str, verdict: &str| Hop { hop: name.into(), title: name.into(), took: 1, steps: vec![step(verdict)] };
        let missing = Some(Missing { scope: "a Role".into(), subject: "User bob".into(), ..Missing::default() });
        let authorization =
            Some(Authorization { role: "Role/r".into(), binding: "RoleBinding/b".into(), missing, ..Authorization::default() });
        let hops = vec![hop("authorize", "allowed"), hop("mutate", "admitted"), hop("authorize", "denied")];
        let text = render(&Explanation { authorization, hops, ..Explanation::default() }, false, &screen());
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what:?} in {text}"));
        assert!(at("Role/r through RoleBinding/b") < at("mutate") && at("mutate") < at("missing: a Role"), "{text}");
        assert_eq!((text.matches("through").count(), text.matches("missing:").count()), (1, 1));
    }
}
