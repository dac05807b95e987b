use jiff::Timestamp;
use k8s_openapi::{ByteString, api::certificates::v1::CertificateSigningRequest};
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyPair};
use serde_json::{Value, json};
use x509_parser::prelude::*;

use super::signer::*;
use super::*;

struct Scene {
    authority: CertificateAuthority,
    now: Timestamp,
}

fn scene() -> Scene {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let certificate = params.self_signed(&key).unwrap().pem();
    let authority = CertificateAuthority::from_pem(certificate.as_bytes(), key.serialize_pem().as_bytes()).unwrap();
    Scene { authority, now: "2030-01-01T00:00:00Z".parse().unwrap() }
}

fn csr(cn: &str, organizations: &[&str], sans: &[&str]) -> String {
    if sans.is_empty() {
        let groups: Vec<String> = organizations.iter().map(|o| (*o).to_owned()).collect();
        return request::make(cn, &groups).unwrap().0;
    }
    let mut params = CertificateParams::new(sans.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, cn);
    for organization in organizations {
        params.distinguished_name.push(DnType::OrganizationName, *organization);
    }
    params.serialize_request(&KeyPair::generate().unwrap()).unwrap().pem().unwrap()
}

fn object(signer: &str, request: &str, usages: &[&str]) -> CertificateSigningRequest {
    let mut object: CertificateSigningRequest = serde_json::from_value(json!({
        "metadata": {"name": "c"},
        "spec": {"signerName": signer, "request": "", "usages": usages},
        "status": {"conditions": [{"type": "Approved", "status": "True"}]},
    }))
    .unwrap();
    object.spec.request = ByteString(request.into());
    object
}

fn reason(signed: Signed) -> String {
    match signed {
        Signed::Failed(condition) => condition.message.unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_signed_request_keeps_all_its_groups_for_the_time_asked() {
    let scene = scene();
    let mut asked = object(KUBE_APISERVER_CLIENT, &csr("alice", &["devs", "ops"], &[]), &["client auth", "digital signature"]);
    asked.spec.expiration_seconds = Some(3600);
    let Signed::Certificate(pem) = sign(&asked, &scene.authority, scene.now) else { panic!() };
    let block = Pem::iter_from_buffer(pem.as_bytes()).next().unwrap().unwrap();
    let (_, certificate) = X509Certificate::from_der(&block.contents).unwrap();
    let organizations: Vec<&str> = certificate.subject().iter_organization().map(|o| o.as_str().unwrap()).collect();
    assert_eq!(organizations, ["devs", "ops"]);
    assert_eq!(certificate.subject().iter_common_name().next().unwrap().as_str().unwrap(), "alice");
    let validity = certificate.validity();
    assert_eq!(validity.not_after.timestamp(), scene.now.as_second() + 3600);
    assert_eq!(validity.not_before.timestamp(), scene.now.as_second() - 300);
    assert!(!certificate.is_ca());
}

#[test]
fn a_certificate_lives_as_long_as_the_signer_lets_it() {
    let lives = |asked: Option<i32>| {
        let Scene { authority, now } = scene();
        let authority = authority.lasting(std::time::Duration::from_secs(24 * 3600));
        let mut object = object(KUBE_APISERVER_CLIENT, &csr("alice", &[], &[]), &["client auth"]);
        object.spec.expiration_seconds = asked;
        let Signed::Certificate(pem) = sign(&object, &authority, now) else { panic!() };
        let block = Pem::iter_from_buffer(pem.as_bytes()).next().unwrap().unwrap();
        X509Certificate::from_der(&block.contents).unwrap().1.validity().not_after.timestamp() - now.as_second()
    };
    assert_eq!(lives(None), 24 * 3600 - 300);
    assert_eq!(lives(Some(1)), 600);
    assert_eq!(lives(Some(7200)), 7200);
    assert_eq!(lives(Some(10 * 3600)), 10 * 3600 - 300);
    assert_eq!(lives(Some(48 * 3600)), 24 * 3600 - 300);
}

#[test]
fn only_approved_requests_of_built_in_signers_are_signed_and_only_once() {
    let scene = scene();
    let good = object(KUBE_APISERVER_CLIENT, &csr("alice", &[], &[]), &["client auth"]);
    let nothing = |status: Value, signer: &str| {
        let mut object = good.clone();
        object.status = serde_json::from_value(status).unwrap();
        object.spec.signer_name = signer.into();
        assert_eq!(sign(&object, &scene.authority, scene.now), Signed::Nothing);
    };
    let condition = |kind: &str| json!({"type": kind, "status": "True"});
    nothing(json!({}), KUBE_APISERVER_CLIENT);
    nothing(json!({"conditions": [condition("Denied")]}), KUBE_APISERVER_CLIENT);
    nothing(json!({"conditions": [condition("Approved"), condition("Failed")]}), KUBE_APISERVER_CLIENT);
    nothing(json!({"conditions": [condition("Approved")], "certificate": "eA=="}), KUBE_APISERVER_CLIENT);
    nothing(json!({"conditions": [condition("Approved")]}), "example.com/x");
    assert!(matches!(sign(&good, &scene.authority, scene.now), Signed::Certificate(_)));
}

#[test]
fn each_signer_refuses_what_it_is_not_for() {
    let scene = scene();
    let sign = |object: CertificateSigningRequest| sign(&object, &scene.authority, scene.now);
    let node = csr("system:node:n1", &["system:nodes"], &[]);
    let serving = csr("system:node:n1", &["system:nodes"], &["n1.example", "10.0.0.1"]);
    let client = ["client auth", "digital signature"];
    assert!(matches!(sign(object(KUBE_APISERVER_CLIENT_KUBELET, &node, &client)), Signed::Certificate(_)));
    assert!(matches!(sign(object(KUBELET_SERVING, &serving, &["server auth", "digital signature"])), Signed::Certificate(_)));
    assert!(reason(sign(object(KUBE_APISERVER_CLIENT_KUBELET, &serving, &client))).contains("not allowed"));
    assert!(
        reason(sign(object(KUBE_APISERVER_CLIENT_KUBELET, &csr("system:node:n1", &["system:masters"], &[]), &client)))
            .contains("system:nodes")
    );
    assert!(reason(sign(object(KUBE_APISERVER_CLIENT_KUBELET, &csr("alice", &["system:nodes"], &[]), &client))).contains("system:node:"));
    assert!(
        reason(sign(object(KUBELET_SERVING, &node, &["server auth", "digital signature"])))
            .contains("DNS or IP subjectAltName is required")
    );
    assert!(
        reason(sign(object(KUBELET_SERVING, &serving, &client)))
            .contains("usages did not match [digital signature key encipherment server auth]")
    );
    let cert_sign = object(KUBE_APISERVER_CLIENT, &csr("a", &[], &[]), &["client auth", "cert sign"]);
    assert_eq!(reason(sign(cert_sign)), "invalid usage for client certificate: cert sign");
    let none = object(KUBE_APISERVER_CLIENT, &csr("a", &[], &[]), &["digital signature"]);
    assert_eq!(reason(sign(none)), "missing required usage for client certificate: client auth");
    let masters = object(KUBE_APISERVER_CLIENT, &csr("a", &["system:masters"], &[]), &["client auth"]);
    assert!(reason(sign(masters)).contains("system:masters"));
    assert!(reason(sign(object(KUBE_APISERVER_CLIENT, "foo", &["client auth"]))).contains("PEM block type"));
}

#[test]
fn a_node_that_asks_for_itself_is_recognised() {
    let mut asked =
        object(KUBE_APISERVER_CLIENT_KUBELET, &csr("system:node:n1", &["system:nodes"], &[]), &["client auth", "digital signature"]);
    let names = |asked: &CertificateSigningRequest| recognised(asked).iter().map(|(name, _)| *name).collect::<Vec<_>>();
    asked.spec.username = Some("system:node:n1".into());
    assert_eq!(names(&asked), ["selfnodeclient", "nodeclient"]);
    asked.spec.username = Some("system:bootstrap:abcdef".into());
    assert_eq!(names(&asked), ["nodeclient"]);
    asked.spec.signer_name = KUBELET_SERVING.into();
    assert!(names(&asked).is_empty());
}

#[test]
fn a_request_whose_signature_proves_nothing_is_refused() {
    let made = csr("alice", &[], &[]);
    let mut der = Pem::iter_from_buffer(made.as_bytes()).next().unwrap().unwrap().contents;
    let at = der.windows(5).position(|w| w == b"alice").unwrap();
    der[at] = b'b';
    let forged = super::pem("CERTIFICATE REQUEST", &der);
    assert!(CertificateRequest::from_pem(forged.as_bytes()).unwrap_err().contains("signature"));
    for end in 0..der.len() {
        let cut = super::pem("CERTIFICATE REQUEST", &der[..end]);
        assert!(CertificateRequest::from_pem(cut.as_bytes()).is_err());
    }
}
