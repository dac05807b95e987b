//! Sets of completion indexes, as a Job's status writes them: `0-3,5,7-9`.

use std::{collections::BTreeSet, fmt};

/// A set of indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes(BTreeSet<i32>);

impl Indexes {
    /// Reads a set. Indexes of `completions` or more, and anything that is no index, are left out.
    pub fn parse(text: &str, completions: i32) -> Indexes {
        let mut set = BTreeSet::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            if let (Ok(first), Ok(last)) = (first.trim().parse::<i32>(), last.trim().parse::<i32>()) {
                set.extend(first.max(0)..=last.min(completions - 1));
            }
        }
        Indexes(set)
    }

    /// Whether an index is in it.
    pub fn contains(&self, index: i32) -> bool {
        self.0.contains(&index)
    }

    /// Adds an index.
    pub fn insert(&mut self, index: i32) {
        self.0.insert(index);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many of `others` are in it.
    pub fn count_of(&self, others: &Indexes) -> usize {
        self.0.intersection(&others.0).count()
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(i32, i32)> = Vec::new();
        for index in &self.0 {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == *index => *last = *index,
                _ => ranges.push((*index, *index)),
            }
        }
        for (number, (first, last)) in ranges.into_iter().enumerate() {
            if number > 0 {
                f.write_str(",")?;
            }
            match last - first {
                0 => write!(f, "{first}")?,
                1 => write!(f, "{first},{last}")?,
                _ => write!(f, "{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_written_as_ranges_and_read_back() {
        for text in ["", "0", "0-3,5", "1,2,4-6"] {
            assert_eq!(Indexes::parse(text, 10).to_string(), text);
        }
        assert_eq!(Indexes::parse("0-20", 4).to_string(), "0-3");
    }
}
