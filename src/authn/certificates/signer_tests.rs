use std::sync::Arc;

use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};
use serde_json::json;

use super::super::validation;
use super::*;
use crate::authn::fixtures::{Authority, Clock};
use crate::authn::x509::Authorities;
use crate::authz::rbac::Rbac;
use crate::authz::rbac::tests::{binding, role, user};
use crate::request::User;

struct Scene {
    pem: String,
    authority: CertificateAuthority,
    now: i64,
}

fn scene() -> Scene {
    let made = Authority::new("ca");
    let authority = CertificateAuthority::from_pem(made.pem.as_bytes(), made.issuer.key().serialize_pem().as_bytes()).unwrap();
    Scene { pem: made.pem, authority, now: jiff::Timestamp::now().as_second() }
}

fn csr(cn: &str, organizations: &[&str], sans: &[&str]) -> String {
    let mut params = CertificateParams::new(sans.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>()).unwrap();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, cn);
    // Two ways of naming the same attribute, because this maker keeps one value of each.
    for (kind, organization) in [DnType::OrganizationName, DnType::CustomDnType(vec![2, 5, 4, 10])].into_iter().zip(organizations) {
        params.distinguished_name.push(kind, DnValue::Utf8String((*organization).to_owned()));
    }
    let key = KeyPair::generate().unwrap();
    STANDARD.encode(params.serialize_request(&key).unwrap().pem().unwrap())
}

fn object(signer: &str, request: &str, usages: &[&str]) -> Value {
    json!({
        "metadata": {"name": "c"},
        "spec": {"signerName": signer, "request": request, "usages": usages},
        "status": {"conditions": [{"type": "Approved", "status": "True"}]},
    })
}

fn reason(outcome: Outcome) -> String {
    match outcome {
        Outcome::Failed(condition) => condition["message"].as_str().unwrap().to_owned(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_signed_request_is_a_credential_with_all_its_groups_for_the_time_asked() {
    let scene = scene();
    let mut asked = object(KUBE_APISERVER_CLIENT, &csr("alice", &["devs", "ops"], &[]), &["client auth", "digital signature"]);
    asked["spec"]["expirationSeconds"] = 3600.into();
    let Outcome::Certificate(certificate) = sign(&asked, &scene.authority, scene.now) else { panic!() };
    let pem = STANDARD.decode(certificate).unwrap();
    let der = x509_parser::pem::Pem::iter_from_buffer(&pem).next().unwrap().unwrap().contents;
    let clock = Clock::at(scene.now);
    let authorities = Authorities::new(clock.now());
    authorities.replace(scene.pem.as_bytes()).unwrap();
    let known = authorities.verify(std::slice::from_ref(&der)).unwrap().unwrap();
    assert_eq!((&*known.name, &*known.groups), ("alice", &["devs".to_owned(), "ops".to_owned()][..]));
    clock.advance(3601);
    assert!(authorities.verify(&[der]).is_err());
}

#[test]
fn only_approved_requests_of_built_in_signers_are_signed_and_only_once() {
    let scene = scene();
    let request = csr("alice", &[], &[]);
    let good = object(KUBE_APISERVER_CLIENT, &request, &["client auth"]);
    let nothing = |change: &dyn Fn(&mut Value)| {
        let mut object = good.clone();
        change(&mut object);
        assert_eq!(sign(&object, &scene.authority, scene.now), Outcome::Nothing);
    };
    nothing(&|o| o["status"] = json!({}));
    nothing(&|o| o["status"]["conditions"] = json!([{"type": "Denied", "status": "True"}]));
    nothing(&|o| o["status"]["conditions"] = json!([{"type": "Approved"}, {"type": "Failed"}]));
    nothing(&|o| o["status"]["certificate"] = "x".into());
    nothing(&|o| o["spec"]["signerName"] = "example.com/x".into());
    assert!(matches!(sign(&good, &scene.authority, scene.now), Outcome::Certificate(_)));
}

#[test]
fn each_signer_refuses_what_it_is_not_for() {
    let scene = scene();
    let sign = |object: Value| sign(&object, &scene.authority, scene.now);
    let node = csr("system:node:n1", &["system:nodes"], &[]);
    let serving = csr("system:node:n1", &["system:nodes"], &["n1.example", "10.0.0.1"]);
    let client = ["client auth", "digital signature"];
    assert!(matches!(sign(object(KUBE_APISERVER_CLIENT_KUBELET, &node, &client)), Outcome::Certificate(_)));
    assert!(matches!(sign(object(KUBELET_SERVING, &serving, &["server auth", "digital signature"])), Outcome::Certificate(_)));
    assert!(reason(sign(object(KUBE_APISERVER_CLIENT_KUBELET, &serving, &client))).contains("not allowed"));
    assert!(
        reason(sign(object(KUBE_APISERVER_CLIENT_KUBELET, &csr("system:node:n1", &["system:masters"], &[]), &client)))
            .contains("system:nodes")
    );
    assert!(reason(sign(object(KUBE_APISERVER_CLIENT_KUBELET, &csr("alice", &["system:nodes"], &[]), &client))).contains("system:node:"));
    assert!(reason(sign(object(KUBELET_SERVING, &node, &["server auth", "digital signature"]))).contains("at least one DNS or IP"));
    assert!(reason(sign(object(KUBELET_SERVING, &serving, &client))).contains("usages"));
    assert!(reason(sign(object(KUBE_APISERVER_CLIENT, &csr("a", &[], &[]), &["client auth", "cert sign"]))).contains("usages"));
    let masters = object(KUBE_APISERVER_CLIENT, &csr("a", &["system:masters"], &[]), &["client auth"]);
    assert!(subject_restriction(&masters).is_err());
    assert!(reason(sign(masters)).contains("system:masters"));
    assert!(reason(sign(object(KUBE_APISERVER_CLIENT, "Zm9v", &["client auth"]))).contains("PEM block type"));
}

#[test]
fn a_node_that_asks_for_itself_is_recognised() {
    let mut asked =
        object(KUBE_APISERVER_CLIENT_KUBELET, &csr("system:node:n1", &["system:nodes"], &[]), &["client auth", "digital signature"]);
    asked["spec"]["username"] = "system:node:n1".into();
    assert_eq!(recognised(&asked), Some("selfnodeclient"));
    asked["spec"]["username"] = "system:bootstrap:abcdef".into();
    assert_eq!(recognised(&asked), Some("nodeclient"));
    asked["spec"]["signerName"] = KUBELET_SERVING.into();
    assert_eq!(recognised(&asked), None);
}

#[test]
fn a_request_whose_signature_proves_nothing_is_refused() {
    let pem = String::from_utf8(STANDARD.decode(csr("alice", &[], &[])).unwrap()).unwrap();
    let mut der = x509_parser::pem::Pem::iter_from_buffer(pem.as_bytes()).next().unwrap().unwrap().contents;
    let at = der.windows(5).position(|w| w == b"alice").unwrap();
    der[at] = b'b';
    let forged = crate::authn::keys::pem("CERTIFICATE REQUEST", &der);
    assert!(CertificateRequest::from_pem(forged.as_bytes()).unwrap_err().contains("signature"));
    for end in 0..der.len() {
        let cut = crate::authn::keys::pem("CERTIFICATE REQUEST", &der[..end]);
        assert!(CertificateRequest::from_pem(cut.as_bytes()).is_err());
    }
}

#[test]
fn objects_are_validated_with_the_recorded_words() {
    let bad = json!({"metadata": {"name": "c"}, "spec": {"request": "Zm9v", "signerName": "example.com/x", "usages": ["client auth"]}});
    let errors: Vec<String> = validation::create(&bad).iter().map(ToString::to_string).collect();
    assert_eq!(errors, ["spec.request: Invalid value: \"Zm9v\": PEM block type must be CERTIFICATE REQUEST"]);
    let mut good = bad.clone();
    good["spec"]["request"] = csr("a", &[], &[]).into();
    assert_eq!(validation::create(&good), []);
    for (key, value) in
        [("signerName", json!("x")), ("signerName", json!(LEGACY_UNKNOWN)), ("usages", json!(["nope"])), ("expirationSeconds", json!(5))]
    {
        let mut wrong = good.clone();
        wrong["spec"][key] = value;
        assert_eq!(validation::create(&wrong).len(), 1, "{key}");
    }
    let mut approved = good.clone();
    approved["status"] = json!({"conditions": [{"type": "Approved", "status": "True"}]});
    assert_eq!(validation::update(&approved, &good, "approval"), []);
    assert_eq!(validation::update(&approved, &good, "status").len(), 1);
    assert_eq!(validation::update(&good, &approved, "approval").len(), 1);
    let mut both = approved.clone();
    both["status"]["conditions"].as_array_mut().unwrap().push(json!({"type": "Denied", "status": "True"}));
    assert!(validation::update(&both, &approved, "approval")[0].to_string().contains("mutually exclusive"));
    let mut signed = approved.clone();
    signed["status"]["certificate"] = "Y2VydA==".into();
    assert_eq!(validation::update(&signed, &approved, "status"), []);
    assert_eq!(validation::update(&signed, &approved, "approval").len(), 1);
    let mut author = good;
    author["spec"]["username"] = "somebody-else".into();
    validation::prepare(&mut author, &User::new("bob", &["g"]));
    assert_eq!((&author["spec"]["username"], &author["spec"]["groups"]), (&json!("bob"), &json!(["g"])));
}

#[tokio::test]
async fn approving_takes_the_right_to_the_signer_or_its_domain() {
    let rbac = Rbac::default();
    let rule = |name: &str| json!([{"verbs": ["approve"], "apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": [name]}]);
    rbac.put("clusterroles", &role("", "domain", rule("kubernetes.io/*")));
    let object = object(KUBE_APISERVER_CLIENT, "", &[]);
    let bob = Arc::new(User::new("bob", &[]));
    let refused = validation::may(&rbac, &bob, "approve", &object).await.unwrap_err();
    assert_eq!(refused, "user not permitted to approve requests with signerName \"kubernetes.io/kube-apiserver-client\"");
    rbac.put("clusterrolebindings", &binding("", "domain", "ClusterRole", "domain", user("bob")));
    validation::may(&rbac, &bob, "approve", &object).await.unwrap();
    assert!(validation::may(&rbac, &bob, "sign", &object).await.is_err());
}
