//! The way from the name of a file to the file: every symbolic link on it, each of which may be swung over, and the place where the
//! file itself lies, which may be another directory than the one it is asked for in.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};

/// More links than this lead nowhere, as the kernel has it.
const MOST_LINKS: usize = 40;

/// The links, and the file itself or where it is missing; each in the directory that really holds it.
pub fn to(path: &Path) -> BTreeSet<PathBuf> {
    let mut way = BTreeSet::new();
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let (mut here, mut ahead) = (PathBuf::from("/"), names(&absolute));
    let mut links = 0;
    while let Some(name) = ahead.pop_front() {
        if name == ".." {
            here.pop();
            continue;
        }
        let next = here.join(&name);
        match std::fs::read_link(&next) {
            Ok(target) if links < MOST_LINKS => {
                links += 1;
                way.insert(next);
                if target.is_absolute() {
                    here = PathBuf::from("/");
                }
                let mut further = names(&target);
                further.append(&mut ahead);
                ahead = further;
            }
            _ if ahead.is_empty() || !next.exists() => {
                way.insert(next);
                break;
            }
            _ => here = next,
        }
    }
    way
}

fn names(path: &Path) -> VecDeque<OsString> {
    let name = |component: Component| match component {
        Component::Normal(_) | Component::ParentDir => Some(component.as_os_str().to_owned()),
        _ => None,
    };
    path.components().filter_map(name).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn every_link_on_the_way_and_the_file_itself_are_named_where_they_really_are() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        for made in ["etc/..2026", "far"] {
            std::fs::create_dir_all(at(made)).unwrap();
        }
        for made in ["etc/..2026/policy", "far/policy"] {
            std::fs::write(at(made), "").unwrap();
        }
        let way = |name: &str| to(&at(name)).into_iter().map(|path| path.strip_prefix(&root).unwrap().to_owned()).collect::<Vec<_>>();
        assert_eq!(way("far/policy"), [Path::new("far/policy")]);
        // As a ConfigMap is mounted.
        symlink("..2026", at("etc/..data")).unwrap();
        symlink("..data/policy", at("etc/policy")).unwrap();
        assert_eq!(way("etc/policy"), [Path::new("etc/..2026/policy"), Path::new("etc/..data"), Path::new("etc/policy")]);
        symlink(at("far"), at("near")).unwrap();
        assert_eq!(way("etc/../near/policy"), [Path::new("far/policy"), Path::new("near")]);
        symlink("../far/none", at("etc/dangling")).unwrap();
        assert_eq!(way("etc/dangling"), [Path::new("etc/dangling"), Path::new("far/none")]);
        symlink("circle", at("circle")).unwrap();
        assert_eq!(way("circle"), [Path::new("circle")]);
    }
}
