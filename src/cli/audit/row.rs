//! A request as one line for people. The columns have fixed widths, so that lines can be written as they come.

use crate::audit::Event;
use crate::audit::facets::judges;
use crate::cli::output::{Ink, Screen, cut, length, pad, span};

/// How wide the columns are that do not give way.
const TIME: usize = 24;
const SHORT_TIME: usize = 12;
const CODE: usize = 4;
const TOOK: usize = 6;
const VERB: usize = 16;
/// How long an Audit-ID is, nearly always; and how much of it is enough to ask for it, where there is no room.
const ID: usize = 36;
const SHORT_ID: usize = 8;
/// A screen narrower than this shows the time of day alone.
const NARROW: usize = 110;
/// A screen of this width has room for Audit-IDs.
const WIDE: usize = 160;

/// How wide everything is that is not the same everywhere.
#[derive(Clone, Copy, Debug)]
struct Layout {
    time: usize,
    user: usize,
    verb: usize,
    /// Nothing where it is not shown.
    id: usize,
    what: usize,
}

impl Layout {
    fn of(screen: &Screen, wide: bool) -> Layout {
        let Some(width) = screen.width else {
            return Layout { time: TIME, user: 30, verb: VERB, id: if wide { ID } else { 0 }, what: usize::MAX };
        };
        let (time, verb) = if width < NARROW { (SHORT_TIME, 8) } else { (TIME, VERB) };
        let id = match wide || width >= WIDE {
            true if width < NARROW => SHORT_ID,
            true => ID,
            false => 0,
        };
        let rest = width.saturating_sub(time + CODE + TOOK + verb + 5 + if id > 0 { id + 1 } else { 0 });
        let user = (rest * 2 / 5).clamp(8, 40);
        Layout { time, user, verb, id, what: rest.saturating_sub(user).max(8) }
    }
}

/// The headings.
pub fn heading(screen: &Screen, wide: bool) -> String {
    let Layout { time, user, verb, id, .. } = Layout::of(screen, wide);
    let id = if id > 0 { format!("{:id$} ", "AUDIT-ID") } else { String::new() };
    let text = format!("{:time$} {:CODE$} {:>TOOK$} {:user$} {:verb$} {id}{}", "TIME", "CODE", "TOOK", "USER", "VERB", "WHAT");
    screen.paint(Ink::Heading, &text)
}

/// The line of an event.
pub fn line(event: &Event, screen: &Screen, wide: bool) -> String {
    let layout = Layout::of(screen, wide);
    let time = event.request_received_timestamp.map(|time| match layout.time == SHORT_TIME {
        true => time.strftime("%H:%M:%S%.3f").to_string(),
        false => format!("{time:.3}"),
    });
    let code = match event.code() {
        0 => String::from("-"),
        code => code.to_string(),
    };
    let short = |name: &str| if screen.width.is_some() { shortened(name, layout.user) } else { name.to_owned() };
    let user = match &event.impersonated_user {
        Some(other) => format!("{} as {}", event.user.username, other.username),
        None => short(&event.user.username),
    };
    // Without a screen nothing is cut.
    let padded = |text: &str, width: usize| if screen.width.is_some() { pad(text, width) } else { pad(text, width.max(length(text))) };
    let id = match layout.id {
        0 => String::new(),
        SHORT_ID => format!("{:SHORT_ID$} ", event.audit_id.get(..SHORT_ID).unwrap_or(&event.audit_id)),
        _ => format!("{} ", pad(&event.audit_id, ID.max(length(&event.audit_id)))),
    };
    format!(
        "{} {} {:>TOOK$} {} {} {id}{}",
        screen.paint(Ink::Faint, &padded(&time.unwrap_or_default(), layout.time)),
        screen.paint(Ink::of_code(event.code()), &padded(&code, CODE)),
        span(event.took()),
        screen.paint(Ink::Name, &padded(&user, layout.user)),
        padded(&event.verb, layout.verb),
        cut(&what(event), layout.what),
    )
}

/// The name of a user that is too long, without what all of its sort have in common.
fn shortened(name: &str, room: usize) -> String {
    let tail = match name.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':')) {
        Some((namespace, account)) if namespace == "kube-system" || namespace.len() + account.len() >= room => account,
        Some(_) => &name["system:serviceaccount:".len()..],
        None => name.strip_prefix("system:").unwrap_or(name),
    };
    if length(name) <= room { name.to_owned() } else { tail.to_owned() }
}

/// What a request was about, and why it failed if it did.
fn what(event: &Event) -> String {
    let mut text = match &event.object_ref {
        None => event.request_uri.clone(),
        Some(object) => {
            let mut text = event.resource();
            if !object.api_group.is_empty() {
                text = match text.split_once('/') {
                    Some((resource, subresource)) => format!("{resource}.{}/{subresource}", object.api_group),
                    None => format!("{text}.{}", object.api_group),
                };
            }
            let wrote = event.trace.as_ref().and_then(|story| story.wrote.as_ref());
            let name = Some(&object.name).filter(|name| !name.is_empty()).or(wrote.map(|wrote| &wrote.name));
            let place =
                [Some(&object.namespace).filter(|n| !n.is_empty()), name].into_iter().flatten().cloned().collect::<Vec<_>>().join("/");
            if !place.is_empty() {
                text = format!("{text} {place}");
            }
            text
        }
    };
    if event.code() >= 400 {
        let judges = judges(event);
        let denied = judges.policies.iter().chain(&judges.webhooks).find(|judge| judge.verdict == "denied");
        let message = event.response_status.as_ref().map_or("", |status| &status.message);
        match (denied, message) {
            (Some(judge), message) => text.push_str(&format!(" — denied by {}: {message}", judge.name)),
            (None, "") => {}
            (None, message) => text.push_str(&format!(" — {message}")),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event() -> Event {
        serde_json::from_value(json!({
            "verb": "create", "user": {"username": "system:serviceaccount:kube-system:replicaset-controller"}, "requestURI": "/x",
            "requestReceivedTimestamp": "2026-05-01T12:00:00.123456Z", "stageTimestamp": "2026-05-01T12:00:00.125456Z",
            "objectRef": {"resource": "deployments", "apiGroup": "apps", "namespace": "default", "name": "web", "subresource": "scale"},
            "responseStatus": {"metadata": {}, "code": 403, "message": "not today"},
        }))
        .unwrap()
    }

    #[test]
    fn a_line_fits_the_screen_and_shows_all_without_one() {
        for width in [60, 80, 120, 200] {
            let text = line(&event(), &Screen { width: Some(width), colour: false }, false);
            assert!(length(&text) <= width, "{width}: {text}");
        }
        let text = line(&event(), &Screen { width: Some(80), colour: false }, false);
        assert!(text.contains(" replicaset-contro… create "), "{text}");
        let text = line(&event(), &Screen { width: None, colour: false }, false);
        assert_eq!(
            text,
            "2026-05-01T12:00:00.123Z 403   2.0ms system:serviceaccount:kube-system:replicaset-controller create           deployments.apps/scale default/web — not today"
        );
        let mut known = event();
        known.audit_id = "0d1fb1f4-70cc-4a2e-ae08-b39b0d5d2bbc".into();
        let wide = |width| line(&known, &Screen { width, colour: false }, true);
        assert!(wide(None).contains(&known.audit_id) && wide(Some(120)).contains(&known.audit_id), "{}", wide(Some(120)));
        assert!(length(&wide(Some(80))) <= 80 && wide(Some(80)).contains(" 0d1fb1f4 deploy"), "{}", wide(Some(80)));
        assert!(length(&wide(Some(120))) <= 120 && heading(&Screen { width: Some(120), colour: false }, true).contains(" AUDIT-ID "));
    }
}
