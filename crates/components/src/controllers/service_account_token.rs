//! ServiceAccount tokens in Secrets: one of type `kubernetes.io/service-account-token` that names an account gets a token, the
//! certificate of the server and its namespace, and goes with the account.

use std::{collections::BTreeMap, sync::Arc};

use futures::future::BoxFuture;
use k8s_openapi::{
    ByteString,
    api::core::v1::{Secret, ServiceAccount},
};

use crate::{
    options::TokenSigner,
    runtime::{Component, Context, Error, Identity, Informer, Key, Outcome, Propagation, Requeue, Source, Writer},
};

const TYPE: &str = "kubernetes.io/service-account-token";
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

struct Controller {
    secrets: Informer<Secret>,
    accounts: Informer<ServiceAccount>,
    writer: Writer<Secret>,
    reader: Writer<ServiceAccount>,
    signer: TokenSigner,
    root_ca: Option<String>,
}

/// Runs the controller, if it was told how to sign.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let Some(signer) = context.options.token_signer.clone() else {
        tracing::debug!("no key was given, no token is put into a Secret");
        return Box::pin(std::future::ready(()));
    };
    let client = context.client(&Identity::controller_manager());
    let secrets = context.watches.selected(&format!("fieldSelector=type%3D{}", TYPE.replace('/', "%2F")));
    let accounts = context.watches.of();
    context.run(Controller {
        writer: Writer::new(client.clone(), &secrets),
        reader: Writer::new(client, &accounts),
        secrets,
        accounts,
        signer,
        root_ca: context.options.root_ca.clone(),
    })
}

impl Component for Controller {
    const NAME: &'static str = "serviceaccount-token-controller";

    fn sources(&self) -> Vec<Source> {
        let secrets = self.secrets.clone();
        vec![
            Source::own(&self.secrets),
            Source::new(&self.accounts, move |change, queue| {
                let Some(account) = change.latest() else { return };
                let (namespace, name) = (account.metadata.namespace.as_deref().unwrap_or_default(), account.metadata.name.as_deref());
                let of_account = secrets.in_namespace(namespace).into_iter().filter(|secret| annotation(secret, ACCOUNT_NAME) == name);
                of_account.for_each(|secret| queue.add(Key::of(&secret.metadata)));
            }),
        ]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let Some(secret) = self.secrets.find(&key).filter(|secret| secret.metadata.deletion_timestamp.is_none()) else {
            return Ok(Requeue::Done);
        };
        let Some(name) = annotation(&secret, ACCOUNT_NAME).filter(|name| !name.is_empty()) else { return Ok(Requeue::Done) };
        match self.account(&Key::new(&key.namespace, name), annotation(&secret, ACCOUNT_UID)).await? {
            None => self.writer.delete(&secret, Propagation::Default).await?,
            Some(account) => {
                if let Some(filled) = self.filled(&secret, &account)? {
                    self.writer.update(&filled).await?;
                }
            }
        }
        Ok(Requeue::Done)
    }
}

impl Controller {
    /// The account that is meant. That it is not there is believed to the server alone.
    async fn account(&self, key: &Key, uid: Option<&str>) -> Result<Option<Arc<ServiceAccount>>, Error> {
        let is_meant = |account: &Arc<ServiceAccount>| uid.is_none_or(|uid| uid.is_empty() || account.metadata.uid.as_deref() == Some(uid));
        if let Some(account) = self.accounts.find(key).filter(is_meant) {
            return Ok(Some(account));
        }
        match self.reader.get(key).await {
            Ok(account) => Ok(Some(account).filter(is_meant)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The Secret with everything that it lacks; `None` if that is nothing.
    fn filled(&self, secret: &Secret, account: &ServiceAccount) -> Result<Option<Secret>, Error> {
        let mut filled = secret.clone();
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let (namespace, uid) = (text(&secret.metadata.namespace), text(&account.metadata.uid));
        let data = filled.data.get_or_insert_with(BTreeMap::new);
        if let Some(root_ca) = &self.root_ca {
            data.insert("ca.crt".into(), ByteString(root_ca.clone().into_bytes()));
        }
        let lacks = |data: &BTreeMap<String, ByteString>, key: &str| data.get(key).is_none_or(|value| value.0.is_empty());
        if lacks(data, "namespace") {
            data.insert("namespace".into(), ByteString(namespace.clone().into_bytes()));
        }
        if lacks(data, "token") {
            let token = self.signer.sign(&namespace, &text(&account.metadata.name), &uid, &text(&secret.metadata.name));
            data.insert("token".into(), ByteString(token.map_err(Error::Other)?.into_bytes()));
        }
        filled.metadata.annotations.get_or_insert_with(BTreeMap::new).insert(ACCOUNT_UID.into(), uid);
        Ok(Some(filled).filter(|filled| filled != secret))
    }
}

fn annotation<'s>(secret: &'s Secret, key: &str) -> Option<&'s str> {
    secret.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}
