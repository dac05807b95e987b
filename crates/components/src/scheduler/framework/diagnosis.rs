//! Why a Pod could not be placed, in the words that people search the web for.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use super::{NodeStatuses, Rejection};

/// Everything that was learnt in a scheduling cycle that placed nothing.
#[derive(Clone, Debug, Default)]
pub struct Diagnosis {
    /// How many nodes the cluster has.
    pub all_nodes: usize,
    /// Why each node was ruled out.
    pub statuses: NodeStatuses,
    /// What nodes missing from `statuses` count as.
    pub absent: Option<Rejection>,
    /// Set when the Pod was turned away before any node was looked at.
    pub pre_filter_message: String,
    /// What PostFilter added.
    pub post_filter_message: String,
    /// Plugins that had a part in it; only their hints are asked later.
    pub unschedulable_plugins: BTreeSet<&'static str>,
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.all_nodes == 0 {
            return f.write_str("no nodes available to schedule pods");
        }
        write!(f, "0/{} nodes are available:", self.all_nodes)?;
        if self.pre_filter_message.is_empty() {
            let mut counts: HashMap<&str, usize> = HashMap::new();
            for rejection in self.statuses.values() {
                for reason in &rejection.reasons {
                    *counts.entry(reason).or_default() += 1;
                }
            }
            if let Some(absent) = &self.absent {
                let missing = self.all_nodes.saturating_sub(self.statuses.len());
                for reason in absent.reasons.iter().filter(|_| missing > 0) {
                    *counts.entry(reason).or_default() += missing;
                }
            }
            // Sorted as text, count first: that is the order people know.
            let mut lines: Vec<String> = counts.into_iter().map(|(reason, count)| format!("{count} {reason}")).collect();
            lines.sort();
            if !lines.is_empty() {
                write!(f, " {}.", lines.join(", "))?;
            }
        } else {
            write!(f, " {}.", self.pre_filter_message)?;
        }
        if !self.post_filter_message.is_empty() {
            write!(f, " {}", self.post_filter_message)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_well_known_text_counts_reasons_over_nodes() {
        let mut diagnosis = Diagnosis { all_nodes: 3, ..Diagnosis::default() };
        for (node, reason) in [("a", "Insufficient cpu"), ("b", "Insufficient cpu"), ("c", "node(s) were unschedulable")] {
            diagnosis.statuses.insert(node.into(), Rejection::unschedulable(reason));
        }
        diagnosis.post_filter_message = "preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod.".into();
        assert_eq!(
            diagnosis.to_string(),
            "0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu. \
             preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."
        );
    }

    #[test]
    fn a_cluster_without_nodes_says_so() {
        assert_eq!(Diagnosis::default().to_string(), "no nodes available to schedule pods");
    }

    #[test]
    fn nodes_that_were_not_looked_at_count_with_the_absent_status() {
        let diagnosis = Diagnosis {
            all_nodes: 2,
            absent: Some(Rejection::unresolvable("Preemption is not helpful for scheduling")),
            ..Diagnosis::default()
        };
        assert_eq!(diagnosis.to_string(), "0/2 nodes are available: 2 Preemption is not helpful for scheduling.");
    }
}
