//! A request as one line for people. The columns have fixed widths, so that lines can be written as they come.

use crate::audit::Event;
use crate::audit::facets::judges;
use crate::cli::output::{Ink, Screen, cut, span};

/// How wide the columns are that do not give way.
const TIME: usize = 24;
const SHORT_TIME: usize = 12;
const CODE: usize = 4;
const TOOK: usize = 6;
const VERB: usize = 16;
/// A screen narrower than this shows the time of day alone.
const NARROW: usize = 110;

/// The widths of what does give way.
#[derive(Clone, Copy, Debug)]
struct Widths {
    time: usize,
    user: usize,
    what: usize,
}

impl Widths {
    fn of(screen: &Screen) -> Widths {
        let Some(width) = screen.width else { return Widths { time: TIME, user: 30, what: usize::MAX } };
        let time = if width < NARROW { SHORT_TIME } else { TIME };
        let verb = if width < NARROW { 8 } else { VERB };
        let rest = width.saturating_sub(time + CODE + TOOK + verb + 5);
        let user = (rest * 2 / 5).clamp(8, 40);
        Widths { time, user, what: rest.saturating_sub(user).max(8) }
    }
}

/// The headings.
pub fn heading(screen: &Screen) -> String {
    let Widths { time, user, .. } = Widths::of(screen);
    let verb = if time == SHORT_TIME { 8 } else { VERB };
    let text = format!("{:time$} {:CODE$} {:>TOOK$} {:user$} {:verb$} {}", "TIME", "CODE", "TOOK", "USER", "VERB", "WHAT");
    screen.paint(Ink::Heading, &text)
}

/// The line of an event.
pub fn line(event: &Event, screen: &Screen) -> String {
    let widths = Widths::of(screen);
    let verb = if widths.time == SHORT_TIME { 8 } else { VERB };
    let time = event.request_received_timestamp.map(|time| match widths.time == SHORT_TIME {
        true => time.strftime("%H:%M:%S%.3f").to_string(),
        false => format!("{time:.3}"),
    });
    let code = match event.code() {
        0 => String::from("-"),
        code => code.to_string(),
    };
    let short = |name: &str| if screen.width.is_some() { shortened(name, widths.user) } else { name.to_owned() };
    let user = match &event.impersonated_user {
        Some(other) => format!("{} as {}", event.user.username, other.username),
        None => short(&event.user.username),
    };
    let padded = |text: &str, width: usize| {
        // Without a screen nothing is cut.
        let text = if screen.width.is_some() { cut(text, width) } else { cut(text, usize::MAX) };
        format!("{text:width$}")
    };
    format!(
        "{} {} {:>TOOK$} {} {} {}",
        screen.paint(Ink::Faint, &padded(&time.unwrap_or_default(), widths.time)),
        screen.paint(Ink::of_code(event.code()), &padded(&code, CODE)),
        span(event.took()),
        screen.paint(Ink::Name, &padded(&user, widths.user)),
        padded(&event.verb, verb),
        cut(&what(event), widths.what),
    )
}

/// The name of a user that is too long, without what all of its sort have in common.
fn shortened(name: &str, room: usize) -> String {
    let tail = match name.strip_prefix("system:serviceaccount:").and_then(|account| account.split_once(':')) {
        Some((namespace, account)) if namespace == "kube-system" || namespace.len() + account.len() >= room => account,
        Some(_) => &name["system:serviceaccount:".len()..],
        None => name.strip_prefix("system:").unwrap_or(name),
    };
    if name.chars().count() <= room { name.to_owned() } else { tail.to_owned() }
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
            let text = line(&event(), &Screen { width: Some(width), colour: false });
            assert!(text.chars().count() <= width, "{width}: {text}");
        }
        let text = line(&event(), &Screen { width: Some(80), colour: false });
        assert!(text.contains(" replicaset-contro… create "), "{text}");
        let text = line(&event(), &Screen { width: None, colour: false });
        assert_eq!(
            text,
            "2026-05-01T12:00:00.123Z 403   2.0ms system:serviceaccount:kube-system:replicaset-controller create           deployments.apps/scale default/web — not today"
        );
    }
}
