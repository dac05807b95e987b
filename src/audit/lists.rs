//! Lists that are asked for again before any of their objects has changed: what was made of the first one is what the others say, too,
//! and is neither put together nor looked through once more.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Json;
use crate::object::list::List;

/// How many are remembered at most, and how many bytes of them.
const MOST: usize = 8;
const MOST_BYTES: usize = 8 << 20;

/// The lists that were last recorded just as they are; the one that was last of use is the last.
#[derive(Debug, Default)]
pub struct Lists {
    known: VecDeque<Known>,
}

#[derive(Debug)]
struct Known {
    list: Arc<List>,
    omit_managed_fields: bool,
    body: Json,
}

impl Lists {
    /// What a list says, if it was recorded just as it is.
    pub fn find(&mut self, list: &List, omit_managed_fields: bool) -> Option<Json> {
        let is_it = |known: &Known| known.omit_managed_fields == omit_managed_fields && known.list.is_same(list);
        let known = self.known.iter().rposition(is_it).and_then(|at| self.known.remove(at))?;
        let body = known.body.clone();
        self.known.push_back(known);
        Some(body)
    }

    /// Remembers one that is recorded just as it is.
    pub fn remember(&mut self, list: &Arc<List>, omit_managed_fields: bool, body: &Json) {
        self.known.push_back(Known { list: list.clone(), omit_managed_fields, body: body.clone() });
        let mut bytes: usize = self.known.iter().map(|known| known.list.length()).sum();
        while self.known.len() > MOST || bytes > MOST_BYTES {
            let Some(gone) = self.known.pop_front() else { return };
            bytes -= gone.list.length();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Object;

    fn object(name: &str) -> Arc<Object> {
        let stored = format!("{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{{\"name\":\"{name}\"}}}}");
        Arc::new(Object::new(format!("/registry/pods/{name}").into(), 7, stored.as_bytes()))
    }

    #[test]
    fn a_list_of_the_same_objects_is_known_and_one_of_others_is_not() {
        let (a, b) = (object("a"), object("b"));
        let list =
            |head: &str, objects: &[&Arc<Object>]| Arc::new(List::new(head.into(), objects.iter().copied().cloned().collect(), false));
        let mut lists = Lists::default();
        let first = list("{\"items\":[", &[&a, &b]);
        assert_eq!(lists.find(&first, false), None);
        let body = Json::written(first.text());
        lists.remember(&first, false, &body);
        let found = lists.find(&list("{\"items\":[", &[&a, &b]), false).unwrap();
        assert!(std::ptr::eq(found.bytes(), body.bytes()), "the text itself");
        for other in [
            list("{\"items\":[", &[&b, &a]),
            list("{\"items\":[", &[&a]),
            list("{\"items\":[", &[&a, &object("b")]),
            list("{ \"items\":[", &[&a, &b]),
            Arc::new(List::new("{\"items\":[".into(), vec![a.clone(), b.clone()], true)),
        ] {
            assert_eq!(lists.find(&other, false), None, "{other:?}");
        }
        assert_eq!(lists.find(&first, true), None, "with managed fields it may be another");
    }

    #[test]
    fn the_ones_that_are_asked_for_stay() {
        let list = |name: &str| Arc::new(List::new("[".into(), vec![object(name)], false));
        let (mut lists, asked) = (Lists::default(), list("asked"));
        lists.remember(&asked, false, &Json::written(asked.text()));
        for number in 0..2 * MOST {
            let other = list(&number.to_string());
            lists.remember(&other, false, &Json::written(other.text()));
            assert!(lists.find(&asked, false).is_some());
        }
        assert_eq!(lists.known.len(), MOST);
    }
}
