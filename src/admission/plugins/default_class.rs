//! The default among classes that mark themselves as one: the newest, and of several as new the first by name. For storage and ingress.

use std::sync::Arc;

use crate::object::{Object, meta};

/// The default class by an annotation that says `true`.
pub fn default_class(classes: Vec<Arc<Object>>, annotations: &[&str]) -> Option<Arc<Object>> {
    let is_default = |class: &Arc<Object>| annotations.iter().any(|a| class.value()["metadata"]["annotations"][*a] == "true");
    let mut defaults: Vec<Arc<Object>> = classes.into_iter().filter(is_default).collect();
    defaults.sort_by(|a, b| {
        let (a_time, b_time) = (meta(a.value(), "creationTimestamp"), meta(b.value(), "creationTimestamp"));
        b_time.cmp(a_time).then_with(|| a.name().cmp(b.name()))
    });
    defaults.into_iter().next()
}
