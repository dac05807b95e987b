//! Image references: `nginx` is `docker.io/library/nginx:latest`.

/// Why a reference cannot be read, in the words of the reference library that kubelets use.
const INVALID: &str = "invalid reference format";

/// The reference in full: registry, path and tag (or digest).
pub fn normalize(image: &str) -> Result<String, String> {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let (path, tag) = match name.rfind(':') {
        // A colon before the last slash belongs to the registry's port.
        Some(colon) if !name[colon..].contains('/') => (&name[..colon], Some(&name[colon + 1..])),
        _ => (name, None),
    };
    let bad_digest = digest.is_some_and(|digest| {
        digest.strip_prefix("sha256:").is_none_or(|hex| hex.len() != 64 || !hex.bytes().all(|b| b.is_ascii_hexdigit()))
    });
    let bad_tag = tag.is_some_and(|tag| {
        tag.is_empty()
            || tag.len() > 128
            || tag.starts_with(['.', '-'])
            || !tag.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
    });
    if path.is_empty() || bad_digest || bad_tag {
        return Err(INVALID.into());
    }
    let (registry, rest) = match path.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':']) || first == "localhost" => (first, rest),
        _ => ("docker.io", path),
    };
    let segment = |text: &str| {
        let edge = |byte: Option<u8>| byte.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        edge(text.bytes().next())
            && edge(text.bytes().last())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b))
    };
    if rest.chars().any(|c| c.is_ascii_uppercase()) {
        return Err(format!("{INVALID}: repository name ({rest}) must be lowercase"));
    }
    if !rest.split('/').all(segment) {
        return Err(INVALID.into());
    }
    let path = if registry == "docker.io" && !rest.contains('/') { format!("library/{rest}") } else { rest.to_owned() };
    Ok(match (tag, digest) {
        (_, Some(digest)) => format!("{registry}/{path}@{digest}"),
        (Some(tag), None) => format!("{registry}/{path}:{tag}"),
        (None, None) => format!("{registry}/{path}:latest"),
    })
}

/// The repository of a normalized reference, without tag or digest.
#[must_use]
pub fn repository(normalized: &str) -> &str {
    let name = normalized.split_once('@').map_or(normalized, |(name, _)| name);
    match name.rfind(':') {
        Some(colon) if !name[colon..].contains('/') => &name[..colon],
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_names_are_completed() {
        assert_eq!(normalize("nginx").unwrap(), "docker.io/library/nginx:latest");
        assert_eq!(normalize("nginx:1.27").unwrap(), "docker.io/library/nginx:1.27");
        assert_eq!(normalize("team/app").unwrap(), "docker.io/team/app:latest");
        assert_eq!(normalize("localhost:5000/app:v1").unwrap(), "localhost:5000/app:v1");
        assert_eq!(normalize("registry.k8s.io/pause:3.10").unwrap(), "registry.k8s.io/pause:3.10");
        let digest = format!("quay.io/a/b@sha256:{}", "a".repeat(64));
        assert_eq!(normalize(&digest).unwrap(), digest);
        assert_eq!(repository("localhost:5000/app:v1"), "localhost:5000/app");
    }

    #[test]
    fn what_is_no_reference_is_refused() {
        for image in ["", "a b", "app:", "app@sha256:12", "-app", "app/", "app:t ag"] {
            assert!(normalize(image).is_err(), "{image:?}");
        }
        assert_eq!(normalize("App").unwrap_err(), "invalid reference format: repository name (App) must be lowercase");
    }
}
