//! The flags of `usher up` that are about audit, as settings.

use std::time::Duration;

use super::Up;
use crate::audit::Settings;
use crate::audit::sink::{log, webhook};
use crate::gateway::layers::deadline::parse_duration;

const DAY: u64 = 86_400;

impl Up {
    /// What is recorded, and where it goes.
    pub(super) fn audit(&self) -> Result<Settings, String> {
        Ok(Settings {
            policy: self.audit_policy.clone(),
            log: self.audit_log(),
            webhook: self.audit_webhook()?,
            store_max_size: self.audit_store_max_size.as_deref().map(|text| size("--audit-store-max-size", text)).transpose()?,
            store_max_age: duration("--audit-store-max-age", self.audit_store_max_age.as_deref())?,
            otlp_endpoint: self.otlp_endpoint.clone(),
        })
    }

    fn audit_log(&self) -> Option<log::Settings> {
        let mut log = log::Settings::new(self.audit_log.as_ref()?);
        // As on a real server, nothing is no limit but the usual one.
        log.max_size = self.audit_log_maxsize.filter(|size| *size > 0).map_or(log.max_size, |megabytes| megabytes << 20);
        log.max_age = self.audit_log_maxage.map_or(log.max_age, |days| Duration::from_secs(days.saturating_mul(DAY)));
        log.max_backups = self.audit_log_maxbackup.unwrap_or(log.max_backups);
        log.compress = self.audit_log_compress.unwrap_or(false);
        Some(log)
    }

    fn audit_webhook(&self) -> Result<Option<webhook::Settings>, String> {
        let Some(config) = &self.audit_webhook_config_file else { return Ok(None) };
        let mut webhook = webhook::Settings::new(config);
        webhook.buffer_size = self.audit_webhook_batch_buffer_size.unwrap_or(webhook.buffer_size);
        webhook.max_size = self.audit_webhook_batch_max_size.unwrap_or(webhook.max_size);
        if webhook.max_size == 0 || webhook.buffer_size < webhook.max_size {
            return Err("--audit-webhook-batch-max-size must be at least 1 and at most --audit-webhook-batch-buffer-size".into());
        }
        webhook.throttle_qps = self.audit_webhook_batch_throttle_qps.unwrap_or(webhook.throttle_qps);
        webhook.throttle_burst = self.audit_webhook_batch_throttle_burst.unwrap_or(webhook.throttle_burst);
        if let Some(wait) = duration("--audit-webhook-batch-max-wait", self.audit_webhook_batch_max_wait.as_deref())? {
            webhook.max_wait = wait;
        }
        if let Some(backoff) = duration("--audit-webhook-initial-backoff", self.audit_webhook_initial_backoff.as_deref())? {
            webhook.initial_backoff = backoff;
        }
        Ok(Some(webhook))
    }
}

fn duration(flag: &str, text: Option<&str>) -> Result<Option<Duration>, String> {
    let parse = |text| parse_duration(text).ok_or_else(|| format!("{flag} takes a duration such as 1h30m, not {text:?}"));
    text.map(parse).transpose()
}

fn size(flag: &str, text: &str) -> Result<u64, String> {
    let (number, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()));
    let factor = match unit {
        "" => 1,
        "Ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        "Ti" => 1 << 40,
        "k" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "T" => 1_000_000_000_000,
        _ => 0_u64,
    };
    let bytes = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)).filter(|bytes| *bytes > 0);
    bytes.ok_or_else(|| format!("{flag} takes a size such as 512Mi or 2Gi, not {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_read_as_kubernetes_writes_them() {
        assert_eq!((size("f", "512Mi"), size("f", "2G"), size("f", "100")), (Ok(512 << 20), Ok(2_000_000_000), Ok(100)));
        for wrong in ["", "0", "x", "1.5Gi", "1Zi", "99999999999Ti"] {
            assert!(size("f", wrong).is_err(), "{wrong}");
        }
        let up =
            Up { audit_log: Some("a.log".into()), audit_log_maxage: Some(2), audit_store_max_age: Some("168h".into()), ..Up::default() };
        let settings = up.audit().unwrap();
        assert_eq!(settings.store_max_age, Some(Duration::from_secs(7 * DAY)));
        let log = settings.log.unwrap();
        assert_eq!((log.max_age, log.max_size, log.max_backups), (Duration::from_secs(2 * DAY), 100 << 20, 100));
        let up = Up { audit_webhook_config_file: Some("w".into()), audit_webhook_batch_max_wait: Some("soon".into()), ..Up::default() };
        assert!(up.audit().unwrap_err().contains("--audit-webhook-batch-max-wait takes a duration"));
    }
}
