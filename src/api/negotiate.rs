//! Content negotiation: which form a client wants an answer in, and which form it sent a body in. Pure functions of the headers, with the
//! refusals of a real server, whose two layers speak differently: the router in front of built-in resources knows only bare media types, the
//! handler behind it (and the one of custom resources, which has no router) knows parameters too.

use std::fmt;

/// How an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// `application/json`
    Json,
    /// `application/yaml`
    Yaml,
    /// `application/vnd.kubernetes.protobuf`
    Protobuf,
}

/// In the order of preference: `*/*` is the first.
const FORMATS: [Format; 3] = [Format::Json, Format::Yaml, Format::Protobuf];

const STREAMS: [&str; 2] = ["application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch"];

impl Format {
    /// The `Content-Type` of a single object.
    pub fn media_type(self) -> &'static str {
        match self {
            Format::Json => "application/json",
            Format::Yaml => "application/yaml",
            Format::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// The `Content-Type` of a watch; YAML cannot be streamed.
    pub fn stream_media_type(self) -> Option<&'static str> {
        match self {
            Format::Json => Some("application/json"),
            Format::Yaml => None,
            Format::Protobuf => Some("application/vnd.kubernetes.protobuf;stream=watch"),
        }
    }

    fn sub_type(self) -> &'static str {
        match self {
            Format::Json => "json",
            Format::Yaml => "yaml",
            Format::Protobuf => "vnd.kubernetes.protobuf",
        }
    }
}

/// What stands behind the path of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// A built-in object or subresource, or any write.
    Object,
    /// GET of a built-in collection, which may be a watch.
    Collection,
    /// Anything of a custom resource: no protobuf but for its metadata.
    Custom,
}

/// Another kind than the resource's own, asked for with `as`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum As {
    /// Rows for people.
    Table,
    /// The metadata of one object.
    PartialObjectMetadata,
    /// The metadata of many.
    PartialObjectMetadataList,
}

/// What was agreed upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// How to write it.
    pub format: Format,
    /// Which kind to turn it into, and that kind's version: `meta.k8s.io/v1` or `meta.k8s.io/v1beta1`.
    pub transform: Option<(As, &'static str)>,
    /// Whether the media type asks for indentation; see also [`wants_pretty`].
    pub pretty: bool,
}

/// A refusal, ready to become a `Status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// 406 or 415.
    pub code: u16,
    /// The `Status`' reason.
    pub reason: &'static str,
    /// The `Status`' message.
    pub message: String,
    /// Whether the `Status` carries `details: {}`, as those that come from the router do.
    pub empty_details: bool,
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

/// The form of an answer. `header` is the request's `Accept`, empty if there is none.
pub fn accept(header: &str, endpoint: Endpoint) -> Result<Accepted, Refusal> {
    route(header, endpoint)?;
    negotiate(header, |format, clause| endpoint.transform(format, clause)).ok_or_else(|| not_acceptable(&media_types()))
}

/// Whether a document that there is in JSON alone is taken.
pub fn accept_json(header: &str) -> Result<(), Refusal> {
    let bare = |clause: &str| clause.split(';').next().unwrap_or_default().trim_matches(' ').to_owned();
    if header.is_empty() || header.split(',').any(|clause| matches!(bare(clause).as_str(), "*/*" | "application/json")) {
        return Ok(());
    }
    let message = "406: Not Acceptable\n\nAvailable representations: application/json".to_owned();
    Err(Refusal { code: 406, reason: "NotAcceptable", message, empty_details: true })
}

/// The form of a document of discovery that is about one group or version.
pub fn accept_document(header: &str, routed: bool) -> Result<Format, Refusal> {
    if routed {
        route(header, Endpoint::Object)?;
    }
    negotiate(header, |_, clause| clause.target().is_none().then_some(None))
        .map(|accepted| accepted.format)
        .ok_or_else(|| not_acceptable(&media_types()))
}

/// The form of a watch.
pub fn accept_stream(header: &str, endpoint: Endpoint) -> Result<Accepted, Refusal> {
    let accepted = accept(header, endpoint)?;
    if accepted.format.stream_media_type().is_none() {
        return Err(not_acceptable(&STREAMS));
    }
    Ok(accepted)
}

/// The form of a `Status`: the best that the client takes without a transformation, and JSON if there is none.
pub fn accept_error(header: &str) -> Format {
    of_error(header).unwrap_or(Format::Json)
}

/// The form in which a client takes a `Status`, if there is one.
pub fn of_error(header: &str) -> Option<Format> {
    negotiate(header, |_, clause| clause.target().is_none().then_some(None)).map(|accepted| accepted.format)
}

/// The form of the discovery documents at `/api` and `/apis`, and whether the aggregated one is wanted.
pub fn accept_discovery(header: &str, routed: bool) -> Result<(Format, bool), Refusal> {
    if routed {
        route(header, Endpoint::Object)?;
    }
    let aggregated =
        |_, clause: &Clause<'_>| (clause.target() == Some(("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList"))).then_some(None);
    if !header.is_empty()
        && let Some(accepted) = negotiate(header, aggregated)
    {
        return Ok((accepted.format, true));
    }
    negotiate(header, |_, clause| clause.target().is_none().then_some(None))
        .map(|accepted| (accepted.format, false))
        .ok_or_else(|| not_acceptable(&media_types()))
}

/// The `Content-Type` of the aggregated discovery document.
pub fn aggregated_discovery_media_type(format: Format) -> String {
    format!("{};g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", format.media_type())
}

/// Whether JSON is to be indented: asked for in the query (`pretty`, where it is given), or the client is a person's tool.
pub fn wants_pretty(query: Option<&str>, user_agent: &str) -> bool {
    match query {
        Some(value) if !value.is_empty() => {
            matches!(value, "1" | "t" | "T" | "true" | "TRUE" | "True")
        }
        _ => ["curl", "Wget", "Mozilla/5.0"].iter().any(|tool| user_agent.starts_with(tool)),
    }
}

/// The form of a request's body. `header` is its `Content-Type`, empty if there is none.
pub fn body(header: &str) -> Result<Format, Refusal> {
    if header.is_empty() {
        return Ok(Format::Json);
    }
    let media_type = media_type(header).unwrap_or_default();
    FORMATS.into_iter().find(|format| format.media_type() == media_type).ok_or_else(|| unknown_format(&media_types()))
}

/// The form of the body of a custom object, which has no protobuf form.
pub fn custom_body(header: &str) -> Result<Format, Refusal> {
    let of_custom = [Format::Json, Format::Yaml].map(Format::media_type);
    match body(header) {
        Ok(Format::Protobuf) | Err(_) => Err(unknown_format(&of_custom)),
        ok => ok,
    }
}

/// How a patch is to be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PatchType {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' own, by the schema; not for custom resources.
    StrategicMerge,
    /// Server-side apply.
    Apply,
}

impl PatchType {
    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            PatchType::Json => "JSON patch",
            PatchType::Merge => "merge patch",
            PatchType::StrategicMerge => "strategic merge patch",
            PatchType::Apply => "apply",
        }
    }

    /// The `Content-Type` that asks for it.
    pub fn media_type(self) -> &'static str {
        match self {
            PatchType::Json => "application/json-patch+json",
            PatchType::Merge => "application/merge-patch+json",
            PatchType::StrategicMerge => "application/strategic-merge-patch+json",
            PatchType::Apply => "application/apply-patch+yaml",
        }
    }
}

/// The type of a patch by its `Content-Type`, for a built-in or a custom resource.
pub fn patch(header: &str, custom: bool) -> Result<PatchType, Refusal> {
    let types: &[_] = if custom {
        &[PatchType::Json, PatchType::Merge, PatchType::Apply]
    } else {
        &[PatchType::Json, PatchType::Merge, PatchType::StrategicMerge, PatchType::Apply]
    };
    let bare = header.split(';').next().unwrap_or_default();
    let bare = if custom { bare } else { bare.trim_matches(' ') };
    types.iter().copied().find(|patch| patch.media_type() == bare).ok_or_else(|| {
        if custom {
            unknown_format(&types.iter().map(|patch| patch.media_type()).collect::<Vec<_>>())
        } else {
            Refusal { code: 415, reason: "UnsupportedMediaType", message: "415: Unsupported Media Type".to_owned(), empty_details: true }
        }
    })
}

impl Endpoint {
    /// Whether the endpoint can serve a clause in a format, and as what.
    fn transform(self, format: Format, clause: &Clause<'_>) -> Option<Option<(As, &'static str)>> {
        let Some((group, version, kind)) = clause.target() else {
            return (self != Endpoint::Custom || format != Format::Protobuf).then_some(None);
        };
        let version = match (group, version) {
            ("meta.k8s.io", "v1") => "meta.k8s.io/v1",
            ("meta.k8s.io", "v1beta1") => "meta.k8s.io/v1beta1",
            _ => return None,
        };
        match kind {
            "Table" if format != Format::Protobuf => Some(Some((As::Table, version))),
            "PartialObjectMetadata" => Some(Some((As::PartialObjectMetadata, version))),
            "PartialObjectMetadataList" => Some(Some((As::PartialObjectMetadataList, version))),
            _ => None,
        }
    }
}

/// The router in front of built-in resources: media types without parameters, and no wildcard but `*/*`.
fn route(header: &str, endpoint: Endpoint) -> Result<(), Refusal> {
    let mut available = media_types().to_vec();
    match endpoint {
        Endpoint::Custom => return Ok(()),
        Endpoint::Collection => available.extend(STREAMS),
        Endpoint::Object => {}
    }
    let routed = header.is_empty()
        || header.split(',').any(|clause| {
            let bare = clause.split(';').next().unwrap_or_default().trim_matches(' ');
            bare == "*/*" || available.contains(&bare)
        });
    if routed {
        return Ok(());
    }
    Err(Refusal {
        code: 406,
        reason: "NotAcceptable",
        message: format!("406: Not Acceptable\n\nAvailable representations: {}", available.join(", ")),
        empty_details: true,
    })
}

/// The first clause, by preference, that some format and `allows` agree to.
fn negotiate<'a>(header: &'a str, allows: impl Fn(Format, &Clause<'a>) -> Option<Option<(As, &'static str)>>) -> Option<Accepted> {
    if header.is_empty() {
        return Some(Accepted { format: Format::Json, transform: None, pretty: false });
    }
    clauses(header).iter().find_map(|clause| {
        FORMATS.into_iter().filter(|format| clause.matches(*format)).find_map(|format| {
            let transform = allows(format, clause)?;
            Some(Accepted { format, transform, pretty: clause.param("pretty") == Some("1") })
        })
    })
}

/// One clause of an `Accept` header.
struct Clause<'a> {
    main: &'a str,
    sub: &'a str,
    quality: f32,
    params: Vec<(&'a str, &'a str)>,
}

impl<'a> Clause<'a> {
    /// `None` for what a real server passes over.
    fn parse(clause: &'a str) -> Option<Self> {
        let (range, rest) = clause.trim_matches(' ').split_once(';').unwrap_or((clause, ""));
        let (main, sub) = match range.split_once('/') {
            Some((main, sub)) if !sub.is_empty() && !sub.contains('/') => (main.trim_matches(' '), sub.trim_matches(' ')),
            None if range.trim_matches(' ') == "*" => ("*", "*"),
            _ => return None,
        };
        let mut clause = Self { main, sub, quality: 1.0, params: Vec::new() };
        for param in rest.split(';') {
            match param.split_once('=') {
                Some((_, value)) if value.is_empty() || value.contains('=') => {}
                Some((name, value)) if name.trim_matches(' ') == "q" => clause.quality = value.parse().unwrap_or(0.0),
                Some((name, value)) => clause.params.push((name.trim_matches(' '), value.trim_matches(' '))),
                None => {}
            }
        }
        Some(clause)
    }

    fn param(&self, name: &str) -> Option<&'a str> {
        self.params.iter().rev().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    /// The kind that is asked for: group, version and kind.
    fn target(&self) -> Option<(&'a str, &'a str, &'a str)> {
        let (group, version, kind) = (self.param("g"), self.param("v"), self.param("as"));
        (group.is_some() || version.is_some() || kind.is_some())
            .then(|| (group.unwrap_or_default(), version.unwrap_or_default(), kind.unwrap_or_default()))
    }

    /// Whether the range takes in the format, and the format can do what else is asked.
    fn matches(&self, format: Format) -> bool {
        let range = match (self.main, self.sub) {
            ("*", "*") | ("application", "*") => true,
            ("application", sub) => sub == format.sub_type(),
            _ => false,
        };
        let stream =
            self.param("stream").is_none_or(|stream| stream.is_empty() || stream == "watch" && format.stream_media_type().is_some());
        // No endpoint of ours has more than one server version.
        range && stream && self.param("sv").is_none_or(|version| version.is_empty() || version == "v1")
    }

    fn comes_before(&self, other: &Self) -> bool {
        self.quality > other.quality || self.main != "*" && other.main == "*" || self.sub != "*" && other.sub == "*"
    }
}

/// The clauses by preference. The order of a real server is not a proper one (a wildcard comes after anything else, whatever their
/// qualities), so its way of sorting is part of the result: insertion.
fn clauses(header: &str) -> Vec<Clause<'_>> {
    /// More than any client sends, and few enough to sort by insertion.
    const MOST: usize = 32;
    let mut sorted: Vec<Clause<'_>> = Vec::new();
    for clause in header.split(',').filter_map(Clause::parse).take(MOST) {
        let mut at = sorted.len();
        while at > 0 && clause.comes_before(&sorted[at - 1]) {
            at -= 1;
        }
        sorted.insert(at, clause);
    }
    sorted
}

/// The media type of a `Content-Type`, in lower case; `None` if the header is malformed.
fn media_type(header: &str) -> Option<String> {
    let mut parts = header.split(';');
    let media_type = parts.next()?.trim().to_ascii_lowercase();
    let mut parts = parts.map(str::trim).peekable();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        match part.split_once('=') {
            Some((name, _)) if !name.is_empty() => {}
            None if part.is_empty() && is_last => {}
            _ => return None,
        }
    }
    Some(media_type)
}

fn media_types() -> [&'static str; 3] {
    FORMATS.map(Format::media_type)
}

fn not_acceptable(accepted: &[&str]) -> Refusal {
    Refusal {
        code: 406,
        reason: "NotAcceptable",
        message: format!("only the following media types are accepted: {}", accepted.join(", ")),
        empty_details: false,
    }
}

fn unknown_format(accepted: &[&str]) -> Refusal {
    Refusal {
        code: 415,
        reason: "UnsupportedMediaType",
        message: format!("the body of the request was in an unknown format - accepted media types include: {}", accepted.join(", ")),
        empty_details: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(format: Format) -> Result<Accepted, Refusal> {
        Ok(Accepted { format, transform: None, pretty: false })
    }

    fn told(result: Result<Accepted, Refusal>) -> (u16, String, bool) {
        let refusal = result.unwrap_err();
        (refusal.code, refusal.message, refusal.empty_details)
    }

    #[test]
    fn json_is_the_answer_to_anything_general() {
        for header in ["", "*/*", "application/json", "application/json, */*", "text/html, */*", "*/*;q=0.1, text/html"] {
            assert_eq!(accept(header, Endpoint::Collection), plain(Format::Json), "{header}");
        }
        assert_eq!(accept("application/yaml", Endpoint::Object), plain(Format::Yaml));
        // The router lets no other wildcard through; custom resources have none.
        assert_eq!(told(accept("application/*", Endpoint::Object)).0, 406);
        assert_eq!(accept("application/*", Endpoint::Custom), plain(Format::Json));
    }

    #[test]
    fn client_go_gets_protobuf_and_for_custom_resources_json() {
        let header = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!(accept(header, Endpoint::Object), plain(Format::Protobuf));
        assert_eq!(accept_stream(header, Endpoint::Collection), plain(Format::Protobuf));
        assert_eq!(accept(header, Endpoint::Custom), plain(Format::Json));
        let metadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
        assert_eq!(
            accept(metadata, Endpoint::Custom),
            Ok(Accepted { format: Format::Protobuf, transform: Some((As::PartialObjectMetadataList, "meta.k8s.io/v1")), pretty: false })
        );
    }

    #[test]
    fn kubectl_gets_a_table_but_never_in_protobuf() {
        let header = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        let table = Accepted { format: Format::Json, transform: Some((As::Table, "meta.k8s.io/v1")), pretty: false };
        assert_eq!(accept(header, Endpoint::Collection), Ok(table));
        assert_eq!(accept_error(header), Format::Json);
        let only = "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io";
        assert_eq!(told(accept(only, Endpoint::Collection)).0, 406);
        assert_eq!(accept(&format!("{only},application/json"), Endpoint::Collection), plain(Format::Json));
    }

    #[test]
    fn what_cannot_be_served_is_refused_in_the_words_of_the_layer_that_refuses() {
        assert_eq!(
            told(accept("text/html", Endpoint::Collection)),
            (406, "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch".into(), true)
        );
        assert_eq!(
            told(accept("text/html", Endpoint::Object)),
            (
                406,
                "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf"
                    .into(),
                true
            )
        );
        assert_eq!(
            told(accept("application/json;as=Nope;v=v1;g=meta.k8s.io", Endpoint::Collection)),
            (
                406,
                "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"
                    .into(),
                false
            )
        );
        assert!(!told(accept("text/html", Endpoint::Custom)).2);
        assert_eq!(
            told(accept_stream("application/yaml", Endpoint::Collection)),
            (406, "only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch".into(), false)
        );
    }

    #[test]
    fn qualities_order_the_clauses_but_a_wildcard_is_always_last() {
        assert_eq!(accept("application/json;q=0.5, application/yaml", Endpoint::Object), plain(Format::Yaml));
        assert_eq!(accept("*/*, application/yaml;q=0.1", Endpoint::Object), plain(Format::Yaml));
        assert_eq!(accept("application/yaml;q=x, application/json;q=0.1", Endpoint::Object), plain(Format::Json));
        let noise = "application/yaml;q=0.3,".repeat(5000);
        assert_eq!(accept(&noise, Endpoint::Object), plain(Format::Yaml));
    }

    #[test]
    fn parameters_are_read_and_unknown_ones_passed_over() {
        let pretty = accept("application/json;pretty=1;odd=x;;=;a", Endpoint::Object).unwrap();
        assert!(pretty.pretty);
        assert_eq!(accept("application/json;stream=watch", Endpoint::Collection), plain(Format::Json));
        assert_eq!(told(accept("application/json;stream=other", Endpoint::Collection)).0, 406);
        assert_eq!(told(accept("application/yaml;stream=watch", Endpoint::Collection)).0, 406);
    }

    #[test]
    fn aggregated_discovery_is_given_to_those_who_name_it() {
        let header = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json";
        assert_eq!(accept_discovery(header, true), Ok((Format::Json, true)));
        assert_eq!(aggregated_discovery_media_type(Format::Json), "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
        assert_eq!(accept_discovery("application/json", true), Ok((Format::Json, false)));
        assert_eq!(accept_discovery("", true), Ok((Format::Json, false)));
        let old = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
        assert_eq!(accept_discovery(old, true).unwrap_err().code, 406);
    }

    #[test]
    fn an_error_is_json_when_nothing_else_is_agreed_upon() {
        assert_eq!(accept_error("text/html"), Format::Json);
        assert_eq!(accept_error("application/vnd.kubernetes.protobuf"), Format::Protobuf);
        assert_eq!(accept_error("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io"), Format::Json);
    }

    #[test]
    fn bodies_are_json_yaml_or_protobuf() {
        assert_eq!(body(""), Ok(Format::Json));
        assert_eq!(body("Application/JSON; charset=utf-8;"), Ok(Format::Json));
        assert_eq!(body("application/yaml"), Ok(Format::Yaml));
        assert_eq!(body("application/vnd.kubernetes.protobuf"), Ok(Format::Protobuf));
        for header in ["text/plain", "application/json; charset", "*/*"] {
            let refusal = body(header).unwrap_err();
            assert_eq!(
                refusal.message,
                "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf"
            );
            assert_eq!((refusal.code, refusal.reason), (415, "UnsupportedMediaType"));
        }
    }

    #[test]
    fn patches_are_known_by_their_media_type() {
        assert_eq!(patch("application/strategic-merge-patch+json", false), Ok(PatchType::StrategicMerge));
        assert_eq!(patch("application/merge-patch+json; charset=utf-8", true), Ok(PatchType::Merge));
        assert_eq!(patch("application/apply-patch+yaml", true), Ok(PatchType::Apply));
        assert_eq!(patch("application/json", false).unwrap_err().message, "415: Unsupported Media Type");
        assert_eq!(patch("", false).unwrap_err().code, 415);
        assert_eq!(
            patch("application/strategic-merge-patch+json", true).unwrap_err().message,
            "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
        );
    }

    #[test]
    fn people_get_indented_json() {
        assert!(wants_pretty(None, "curl/8.5"));
        assert!(!wants_pretty(Some("false"), "curl/8.5"));
        assert!(!wants_pretty(None, "kubectl/v1.37"));
        assert!(wants_pretty(Some("true"), "kubectl/v1.37"));
    }
}
