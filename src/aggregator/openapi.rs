//! What extension servers say of themselves in OpenAPI. Their v3 documents stay with them and are only listed here; v2 has one document for
//! everybody, so theirs is fetched, again only when it changed. Asked for together with their discovery.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde_json::Value;

use super::{Aggregator, Remote, headers};
use crate::admission::webhook::endpoint;
use crate::api::discovery::Document;
use crate::api::openapi::Extension;
use crate::registry::Table;
use crate::request::User;

/// The largest document that is taken.
const MAX_DOCUMENT: usize = 32 << 20;

/// What one extension server publishes.
#[derive(Default)]
pub(super) struct Published {
    /// The addresses of its v3 documents.
    addresses: BTreeMap<String, String>,
    /// The v3 document that is made here, for a server that has only v2.
    made: Option<Document>,
    v2: Option<Arc<Extension>>,
    /// By which the extension server knows the document that is here.
    tag: Option<HeaderValue>,
}

impl Aggregator {
    /// Asks an extension server for its documents. One that has none, or cannot be reached now, is listed with what it had.
    pub(super) async fn fetch_documents(&self, remote: &Arc<Remote>) {
        let before = self.published.lock().get(&remote.name).cloned().unwrap_or_default();
        let path = format!("apis/{}/{}", remote.group, remote.version);
        let mut now = Published { v2: before.v2.clone(), tag: before.tag.clone(), ..Published::default() };
        if let Some((StatusCode::OK, _, body)) = self.fetch(remote, "/openapi/v3", None).await {
            let index: Value = serde_json::from_slice(&body).unwrap_or_default();
            let address = |name: &str| index["paths"][name]["serverRelativeURL"].as_str().map(str::to_owned);
            for name in [format!("apis/{}", remote.group), path.clone()] {
                now.addresses.extend(address(&name).map(|address| (name, address)));
            }
        }
        match self.fetch(remote, "/openapi/v2", before.tag.as_ref()).await {
            Some((StatusCode::OK, tag, body)) => {
                let document = serde_json::from_slice(&body).unwrap_or_default();
                now.v2 = Some(Arc::new(Extension::of(document, &remote.group, &remote.version)));
                now.tag = tag;
            }
            Some((StatusCode::NOT_FOUND, ..)) => (now.v2, now.tag) = (None, None),
            _ => {}
        }
        if let (true, Some(v2)) = (now.addresses.is_empty(), &now.v2) {
            let document = v2.v3();
            now.addresses.insert(path.clone(), format!("/openapi/v3/{path}?hash={}", document.etag.trim_matches('"')));
            now.made = Some(document);
        }
        self.published.lock().insert(remote.name.clone(), Arc::new(now));
    }

    async fn fetch(
        &self,
        remote: &Arc<Remote>,
        path: &str,
        tag: Option<&HeaderValue>,
    ) -> Option<(StatusCode, Option<HeaderValue>, Vec<u8>)> {
        let address = endpoint::resolve(&remote.service, &self.clients.services, &self.cluster).await.ok()?;
        let client = self.clients.client(remote).ok()?;
        client.address.store(Some(Arc::new(address)));
        let mut sent = HeaderMap::new();
        headers::identify(&mut sent, &User::new("system:aggregator", &[]));
        sent.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        sent.extend(tag.map(|tag| (header::IF_NONE_MATCH, tag.clone())));
        let url = format!("https://{}.{}.svc{path}", remote.service.name, remote.service.namespace);
        let mut answer = client.http.get(&url).headers(sent).send().await.ok()?;
        let (code, tag) = (answer.status(), answer.headers().get(header::ETAG).cloned());
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await.ok()? {
            if body.len() + chunk.len() > MAX_DOCUMENT {
                return None;
            }
            body.extend_from_slice(&chunk);
        }
        Some((code, tag, body))
    }

    /// The v3 documents of extension servers with their addresses, for the index.
    pub fn addresses(&self, table: &Table) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for (_, published) in self.served_documents(table) {
            all.extend(published.addresses.clone());
        }
        all
    }

    /// The v2 documents of extension servers.
    pub fn extensions(&self, table: &Table) -> Vec<Arc<Extension>> {
        self.served_documents(table).into_iter().filter_map(|(_, published)| published.v2.clone()).collect()
    }

    /// The v3 document of an extension server that has none itself.
    pub fn made_document(&self, table: &Table, name: &str) -> Option<Document> {
        let all = self.served_documents(table);
        all.into_iter().filter(|(_, published)| published.addresses.contains_key(name)).find_map(|(_, published)| published.made.clone())
    }

    /// Who has the v3 document at a path, unless it is made here.
    pub(super) fn documented(&self, path: &str, table: &Table) -> Option<Arc<Remote>> {
        let name = path.strip_prefix("/openapi/v3/")?;
        let all = self.served_documents(table);
        let (remote, _) = all.into_iter().find(|(_, published)| published.made.is_none() && published.addresses.contains_key(name))?;
        Some(remote)
    }

    /// The extension servers that answer for their group version, with what they publish, in their order.
    fn served_documents(&self, table: &Table) -> Vec<(Arc<Remote>, Arc<Published>)> {
        let remotes = self.remotes.load();
        if remotes.is_empty() {
            return Vec::new();
        }
        let published = self.published.lock();
        let served = remotes.iter().filter(|remote| remote.available && table.of_version(&remote.group, &remote.version).next().is_none());
        served.filter_map(|remote| Some((remote.clone(), published.get(&remote.name)?.clone()))).collect()
    }
}
