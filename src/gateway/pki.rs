//! What a server needs to be trusted and to know its own: a CA, the serving certificate, the administrator's client certificate,
//! the service-account key, the front-proxy CA. Made where it is missing, under the data directory, keys readable by their owner
//! only; see `certs/README.md` for the profile.

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, SanType,
};

/// How long a CA lives, and how long what it signs lives, in days.
const CA_DAYS: i64 = 3650;
const LEAF_DAYS: i64 = 365;

/// As whom a server shows itself to kubelets.
pub const KUBELET_CLIENT: &str = "kube-apiserver-kubelet-client";

/// The PEM files of a server.
#[derive(Clone)]
pub struct Pki {
    /// Where they lie; in memory only where there is none.
    pub directory: Option<PathBuf>,
    /// The CA's certificate.
    pub ca: String,
    /// The CA's key, which signs certificates of new identities.
    pub ca_key: String,
    /// The serving certificate.
    pub serving: String,
    /// Its key.
    pub serving_key: String,
    /// The administrator's client certificate.
    pub admin: String,
    /// Its key.
    pub admin_key: String,
    /// The key that signs service-account tokens.
    pub service_account_key: String,
    /// The certificate that the server shows to kubelets in other processes.
    pub kubelet_client: String,
    /// Its key.
    pub kubelet_client_key: String,
    /// The CA that front proxies are known by, and with which the server shows itself to extension servers.
    pub front_proxy_ca: String,
    /// Its key.
    pub front_proxy_ca_key: String,
    /// The certificate that the server shows to extension servers.
    pub front_proxy_client: String,
    /// Its key.
    pub front_proxy_client_key: String,
}

type Made = (String, String);

impl Pki {
    /// Reads what there is and makes what is missing. Without a directory everything is made and nothing kept.
    pub fn open(directory: Option<&Path>, hosts: &[String]) -> Result<Pki, String> {
        if let Some(directory) = directory {
            fs::create_dir_all(directory).map_err(|e| format!("cannot make {}: {e}", directory.display()))?;
        }
        let (ca, ca_key) = pair(directory, "ca", || authority("usher-ca"))?;
        let (front_proxy_ca, front_proxy_ca_key) = pair(directory, "front-proxy-ca", || authority("usher-front-proxy-ca"))?;
        let (front_proxy_client, front_proxy_client_key) =
            pair(directory, "front-proxy-client", || client(&front_proxy_ca, &front_proxy_ca_key, "front-proxy-client", &[]))?;
        let (serving, serving_key) = pair(directory, "apiserver", || serving(&ca, &ca_key, hosts))?;
        let (admin, admin_key) = pair(directory, "admin", || client(&ca, &ca_key, "kubernetes-admin", &["system:masters".into()]))?;
        let (kubelet_client, kubelet_client_key) =
            pair(directory, "apiserver-kubelet-client", || client(&ca, &ca_key, KUBELET_CLIENT, &[]))?;
        let (_, service_account_key) = pair(directory, "sa", || {
            let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(text)?;
            Ok((key.public_key_pem(), key.serialize_pem()))
        })?;
        let directory = directory.map(Path::to_owned);
        Ok(Pki {
            directory,
            ca,
            ca_key,
            serving,
            serving_key,
            admin,
            admin_key,
            service_account_key,
            kubelet_client,
            kubelet_client_key,
            front_proxy_ca,
            front_proxy_ca_key,
            front_proxy_client,
            front_proxy_client_key,
        })
    }
}

fn text(error: rcgen::Error) -> String {
    format!("cannot make a certificate: {error}")
}

fn pair(directory: Option<&Path>, name: &str, make: impl FnOnce() -> Result<Made, String>) -> Result<Made, String> {
    let Some(directory) = directory else { return make() };
    let public = directory.join(if name == "sa" { "sa.pub".to_owned() } else { format!("{name}.crt") });
    let private = directory.join(format!("{name}.key"));
    if public.exists() && private.exists() {
        let read = |path: &Path| fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()));
        return Ok((read(&public)?, read(&private)?));
    }
    let (certificate, key) = make()?;
    write(&public, &certificate, 0o644)?;
    write(&private, &key, 0o600)?;
    Ok((certificate, key))
}

/// Writes a file that others may or may not read from its first moment on.
pub fn write(path: &Path, content: &str, mode: u32) -> Result<(), String> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(mode);
    let mut file = options.open(path).map_err(|e| format!("cannot write {}: {e}", path.display()))?;
    file.write_all(content.as_bytes()).map_err(|e| format!("cannot write {}: {e}", path.display()))
}

fn params(name: &str, days: i64) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    params.distinguished_name = subject;
    let now = jiff::Timestamp::now();
    // A minute of grace for clocks that run behind.
    let day = |offset: i64| {
        let at = now.checked_add(jiff::SignedDuration::from_secs(offset)).unwrap_or(now).to_zoned(jiff::tz::TimeZone::UTC);
        rcgen::date_time_ymd(i32::from(at.year()), at.month() as u8, at.day() as u8)
    };
    params.not_before = day(-60);
    params.not_after = day((days + 1) * 86400);
    params
}

fn authority(name: &str) -> Result<Made, String> {
    let mut params = params(name, CA_DAYS);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(text)?;
    let certificate = params.self_signed(&key).map_err(text)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn signed(ca: &str, ca_key: &str, params: CertificateParams) -> Result<Made, String> {
    let issuer = Issuer::from_ca_cert_pem(ca, KeyPair::from_pem(ca_key).map_err(text)?).map_err(text)?;
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(text)?;
    let certificate = params.signed_by(&key, &issuer).map_err(text)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

/// A certificate that nobody vouches for, for a server of which nobody asks that.
pub fn self_signed(name: &str) -> Result<Made, String> {
    let mut params = params(name, LEAF_DAYS);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(text)?;
    let certificate = params.self_signed(&key).map_err(text)?;
    Ok((certificate.pem(), key.serialize_pem()))
}

fn serving(ca: &str, ca_key: &str, hosts: &[String]) -> Result<Made, String> {
    let mut params = params("kube-apiserver", LEAF_DAYS);
    let fixed = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"];
    let addresses = ["127.0.0.1", "::1", "10.96.0.1"];
    for host in fixed.iter().chain(&addresses).map(|h| (*h).to_owned()).chain(hosts.iter().cloned()) {
        let san = match host.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(host.clone().try_into().map_err(|e| format!("{host:?} is no host name: {e}"))?),
        };
        if !params.subject_alt_names.contains(&san) {
            params.subject_alt_names.push(san);
        }
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    signed(ca, ca_key, params)
}

/// A client certificate: the user's name and groups, as x509 authentication reads them.
pub fn client(ca: &str, ca_key: &str, name: &str, groups: &[String]) -> Result<Made, String> {
    let mut params = params(name, LEAF_DAYS);
    for group in groups {
        params.distinguished_name.push(DnType::OrganizationName, group.as_str());
    }
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    signed(ca, ca_key, params)
}
