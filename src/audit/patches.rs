//! The patches of mutating webhooks, as an event shows them: annotations that are JSON, with the configuration, the webhook, the patch and
//! its sort. They say what was changed in the object of a request, and so whatever a webhook copied from one of its fields to another.

use serde_json::{Map, Value};

use super::Event;
use super::record::{PATCH_ANNOTATION, escaped};
use super::redact::MASK;

/// How the text of one is ordered.
const MEMBERS: [&str; 4] = ["configuration", "webhook", "patch", "patchType"];

/// Has every patch looked through, in which anything may be changed. One that cannot be read is not told.
pub fn each(event: &mut Event, mut look: impl FnMut(&mut Value)) {
    for (_, text) in event.annotations.iter_mut().filter(|(key, _)| key.starts_with(PATCH_ANNOTATION)) {
        let Ok(Value::Object(mut map)) = serde_json::from_str::<Value>(text) else {
            *text = MASK.to_owned();
            continue;
        };
        let Some(patch) = map.get_mut("patch") else { continue };
        let told = patch.clone();
        look(patch);
        if *patch != told {
            *text = in_order(&map);
        }
    }
}

/// What the operations of a patch write. Where they write it is told in any case: keys are no secret.
pub fn written(patch: &mut Value) -> impl Iterator<Item = &mut Value> {
    let operations = patch.as_array_mut().into_iter().flatten();
    operations.filter_map(|operation| operation.get_mut("value"))
}

fn in_order(map: &Map<String, Value>) -> String {
    let members = MEMBERS.iter().filter_map(|key| map.get(*key).map(|value| format!("{key:?}:{value}")));
    escaped(format!("{{{}}}", members.collect::<Vec<_>>().join(",")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_patch_that_is_changed_keeps_its_order_and_its_escapes_and_one_that_is_not_stays_as_it_is() {
        let text = |value: &str| {
            format!(
                r#"{{"configuration":"c","webhook":"w","patch":[{{"op":"add","path":"/a","value":"{value}"}}],"patchType":"JSONPatch"}}"#
            )
        };
        let patched = |before: &str, look: fn(&mut Value)| {
            let mut event = Event::default();
            event.annotations.insert(format!("{PATCH_ANNOTATION}round_0_index_0"), before.to_owned());
            event.annotations.insert("other/x".into(), "{".into());
            each(&mut event, look);
            assert_eq!(event.annotations["other/x"], "{");
            event.annotations.remove(&format!("{PATCH_ANNOTATION}round_0_index_0")).unwrap()
        };
        let change: fn(&mut Value) = |patch| written(patch).for_each(|value| *value = json!("<b>"));
        assert_eq!(patched(&text("x"), change), text("\\u003cb\\u003e"));
        assert_eq!(patched(&text("\\u003c"), |_| {}), text("\\u003c"));
        assert_eq!(patched("{", change), MASK);
    }
}
