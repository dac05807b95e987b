//! Which components run: the syntax of `--components`, which is that of kube-controller-manager's `--controllers`.
//!
//! `*` is everything, `a` switches one on, `-a` switches one off; `all` and `none` say it in words, and
//! `controllers` stands for all that a kube-controller-manager runs. What is named wins over a wildcard.

use std::str::FromStr;

/// A parsed `--components`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection(Vec<String>);

/// An unknown name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a component")]
pub struct Unknown(pub String);

/// What a selection is made from: a name, other names for it, and whether a kube-controller-manager has it.
#[derive(Clone, Copy, Debug)]
pub struct Selectable {
    /// The name.
    pub name: &'static str,
    /// Shorter or older names.
    pub aliases: &'static [&'static str],
    /// Whether `controllers` includes it.
    pub controller: bool,
}

impl Default for Selection {
    fn default() -> Self {
        Self::all()
    }
}

impl FromStr for Selection {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        Ok(Selection(parts.map(str::to_owned).collect()))
    }
}

impl Selection {
    /// Everything.
    pub fn all() -> Self {
        Selection(vec!["*".into()])
    }

    /// Nothing.
    pub fn none() -> Self {
        Selection(Vec::new())
    }

    /// Exactly these.
    pub fn only(names: &[&str]) -> Self {
        Selection(names.iter().map(|name| (*name).to_owned()).collect())
    }

    /// Says so if a name in it is none of `known`.
    pub fn check(&self, known: &[Selectable]) -> Result<(), Unknown> {
        let words = ["*", "all", "none", "controllers"];
        for part in &self.0 {
            let name = part.strip_prefix('-').unwrap_or(part);
            if !words.contains(&name) && !known.iter().any(|entry| is(entry, name)) {
                return Err(Unknown(name.to_owned()));
            }
        }
        Ok(())
    }

    /// Whether it includes `entry`.
    pub fn includes(&self, entry: &Selectable) -> bool {
        let mut by_wildcard = false;
        for part in &self.0 {
            match part.strip_prefix('-') {
                Some(name) if is(entry, name) => return false,
                Some("controllers") if entry.controller => return false,
                None if is(entry, part) => return true,
                None if part == "*" || part == "all" => by_wildcard = true,
                None if part == "controllers" && entry.controller => by_wildcard = true,
                _ => {}
            }
        }
        by_wildcard
    }
}

fn is(entry: &Selectable, name: &str) -> bool {
    entry.name == name || entry.aliases.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEDULER: Selectable = Selectable { name: "scheduler", aliases: &[], controller: false };
    const JOB: Selectable = Selectable { name: "job-controller", aliases: &["job"], controller: true };

    fn chosen(text: &str) -> (bool, bool) {
        let selection: Selection = text.parse().unwrap();
        (selection.includes(&SCHEDULER), selection.includes(&JOB))
    }

    #[test]
    fn wildcards_names_and_exceptions_are_understood() {
        assert_eq!(chosen("*"), (true, true));
        assert_eq!(chosen("all"), (true, true));
        assert_eq!(chosen("*,-scheduler"), (false, true));
        assert_eq!(chosen("job"), (false, true));
        assert_eq!(chosen("scheduler,job-controller"), (true, true));
        assert_eq!(chosen("controllers"), (false, true));
        assert_eq!(chosen("*,-controllers"), (true, false));
        assert_eq!(chosen("none"), (false, false));
        assert_eq!(chosen(""), (false, false));
    }

    #[test]
    fn a_name_that_nobody_has_is_refused() {
        let selection: Selection = "*,-scheduller".parse().unwrap();
        assert_eq!(selection.check(&[SCHEDULER, JOB]), Err(Unknown("scheduller".into())));
    }
}
