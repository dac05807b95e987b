//! The flags of `usher up` that are about who asks and what they may do, as settings.

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Up, list};
use crate::gateway::layers::deadline::parse_duration;
use crate::server::identity::Settings;

impl Up {
    /// Where credentials come from, and who decides.
    pub(super) fn identity(&self) -> Result<Settings, String> {
        let given = |flag: &Option<String>| flag.as_deref().map(list);
        let mut settings = Settings {
            token_auth_file: self.token_auth_file.clone(),
            client_ca_file: self.client_ca_file.clone(),
            no_anonymous: self.anonymous_auth == Some(false),
            authentication_config: self.authentication_config.clone(),
            authentication_token_webhook_config_file: self.authentication_token_webhook_config_file.clone(),
            oidc: self.oidc()?,
            service_account_issuers: given(&self.service_account_issuer).unwrap_or_default(),
            service_account_signing_key_file: self.service_account_signing_key_file.clone(),
            service_account_key_files: given(&self.service_account_key_file).unwrap_or_default().into_iter().map(PathBuf::from).collect(),
            api_audiences: given(&self.api_audiences).unwrap_or_default(),
            requestheader_client_ca_file: self.requestheader_client_ca_file.clone(),
            authorization_policy_file: self.authorization_policy_file.clone(),
            authorization_webhook_config_file: self.authorization_webhook_config_file.clone(),
            authorization_config: self.authorization_config.clone(),
            ..Settings::default()
        };
        if let Some(modes) = given(&self.authorization_mode) {
            settings.authorization_mode = modes;
        }
        if let Some(ttl) = duration("--authentication-token-webhook-cache-ttl", self.authentication_token_webhook_cache_ttl.as_deref())? {
            settings.authentication_token_webhook_cache_ttl = ttl;
        }
        if let Some(longest) = duration("--service-account-max-token-expiration", self.service_account_max_token_expiration.as_deref())? {
            if !longest.is_zero() && !(Duration::from_secs(3600)..=Duration::from_secs(1 << 32)).contains(&longest) {
                return Err("the service-account-max-token-expiration must be between 1 hour and 2^32 seconds".into());
            }
            settings.service_account_max_token_expiration = longest;
        }
        let headers = &mut settings.requestheader;
        if self.requestheader_client_ca_file.is_some() {
            headers.allowed_names = Vec::new();
        }
        for (flag, setting) in [
            (&self.requestheader_allowed_names, &mut headers.allowed_names),
            (&self.requestheader_username_headers, &mut headers.username),
            (&self.requestheader_uid_headers, &mut headers.uid),
            (&self.requestheader_group_headers, &mut headers.group),
            (&self.requestheader_extra_headers_prefix, &mut headers.extra_prefix),
        ] {
            if let Some(given) = given(flag) {
                *setting = given;
            }
        }
        Ok(settings)
    }

    /// The one issuer of the flags `--oidc-*`, as an AuthenticationConfiguration writes it.
    fn oidc(&self) -> Result<Option<Value>, String> {
        let Some(url) = &self.oidc_issuer_url else {
            return if self.oidc_client_id.is_some() {
                Err("oidc-issuer-url and oidc-client-id must be specified together".into())
            } else {
                Ok(None)
            };
        };
        let client = self.oidc_client_id.as_ref().ok_or("oidc-issuer-url and oidc-client-id must be specified together")?;
        if self.authentication_config.is_some() {
            return Err("authentication-config file and oidc-* flags are mutually exclusive".into());
        }
        let claim = self.oidc_username_claim.as_deref().unwrap_or("sub");
        let prefix = match self.oidc_username_prefix.as_deref() {
            Some("-") => String::new(),
            Some(prefix) => prefix.to_owned(),
            None if claim == "email" => String::new(),
            None => format!("{url}#"),
        };
        let mut jwt = json!({
            "issuer": {"url": url, "audiences": [client]},
            "claimMappings": {"username": {"claim": claim, "prefix": prefix}},
        });
        if let Some(groups) = &self.oidc_groups_claim {
            jwt["claimMappings"]["groups"] = json!({"claim": groups, "prefix": self.oidc_groups_prefix.as_deref().unwrap_or_default()});
        }
        let required = list(self.oidc_required_claim.as_deref().unwrap_or_default());
        let rule = |entry: String| match entry.split_once('=') {
            Some((claim, value)) => Ok(json!({"claim": claim, "requiredValue": value})),
            None => Err(format!("--oidc-required-claim takes claim=value, not {entry:?}")),
        };
        jwt["claimValidationRules"] = required.into_iter().map(rule).collect::<Result<Vec<_>, _>>()?.into();
        if let Some(file) = &self.oidc_ca_file {
            let ca = std::fs::read_to_string(file).map_err(|e| format!("cannot read {}: {e}", file.display()))?;
            jwt["issuer"]["certificateAuthority"] = ca.into();
        }
        Ok(Some(jwt))
    }
}

fn duration(flag: &str, text: Option<&str>) -> Result<Option<Duration>, String> {
    let read = |text: &str| parse_duration(text).ok_or_else(|| format!("{flag} takes a duration such as 1h30m, not {text:?}"));
    text.map(|text| if text == "0" { Ok(Duration::ZERO) } else { read(text) }).transpose()
}
