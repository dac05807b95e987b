//! PATCH: which patch it is, and how it makes the new object of the old one. The patches themselves are in [`super::patch`]
//! and [`super::apply`].

use http::HeaderMap;
use serde_json::Value;

use super::options::WriteOptions;
use super::write::{Target, Written};
use super::{Api, body};
use crate::status::Status;

impl Api {
    /// Patches an object.
    pub async fn patch(&self, target: Target, headers: &HeaderMap, bytes: &[u8]) -> Result<Written, Status> {
        let options = WriteOptions::parse(&target.context, "PatchOptions")?;
        let target = Target { options, ..target };
        let headers = headers.clone();
        let bytes = bytes.to_vec();
        let make = move |old: Option<&std::sync::Arc<crate::object::Object>>| -> Result<Value, Status> {
            let old = old.map(|o| o.to_value()).unwrap_or_default();
            let mut new = body::patch_value(&headers, &bytes, &old)?;
            if new.pointer("/metadata/resourceVersion") == old.pointer("/metadata/resourceVersion") {
                crate::object::meta_mut(&mut new).remove("resourceVersion");
            }
            Ok(new)
        };
        self.update(&target, &make, false).await
    }
}
