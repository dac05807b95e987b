//! How many replicas each ReplicaSet of a Deployment should have next. Pure arithmetic on plain numbers.
//!
//! A rolling update keeps between `replicas - maxUnavailable` available Pods and `replicas + maxSurge` Pods in all;
//! scaling in the middle of one is spread over the ReplicaSets in proportion to their sizes.

use k8s_openapi::{api::apps::v1::Deployment, apimachinery::pkg::util::intstr::IntOrString};

use crate::controllers::percent::{Round, resolve};

/// One ReplicaSet as the rollout sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// Its name.
    pub name: String,
    /// How many Pods it should have.
    pub replicas: i32,
    /// How many of them are available.
    pub available: i32,
    /// When it was created, in seconds.
    pub created: i64,
    /// The annotation that says how large the Deployment was when it was last scaled.
    pub desired: Option<i32>,
    /// The annotation that says how large the Deployment could be with surge at that time.
    pub max: Option<i32>,
}

/// What the Deployment wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How many Pods are wanted.
    pub replicas: i32,
    /// How many more there may be.
    pub surge: i32,
    /// How many of them may be unavailable.
    pub unavailable: i32,
    /// Whether it rolls; otherwise it recreates.
    pub rolling: bool,
}

/// A ReplicaSet by name and the size it should get.
pub type Resize = (String, i32);

impl Bounds {
    /// The bounds of a Deployment, with percentages resolved.
    pub fn of(deployment: &Deployment) -> Bounds {
        let replicas = deployment.spec.replicas.unwrap_or(1);
        let strategy = deployment.spec.strategy.as_ref();
        let rolling = strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("Recreate");
        if !rolling {
            return Bounds { replicas, surge: 0, unavailable: 0, rolling };
        }
        let rolling_update = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let quarter = IntOrString::String("25%".into());
        let surge = rolling_update.and_then(|update| update.max_surge.as_ref()).unwrap_or(&quarter);
        let unavailable = rolling_update.and_then(|update| update.max_unavailable.as_ref()).unwrap_or(&quarter);
        let surge = resolve(surge, replicas, Round::Up).unwrap_or(0);
        let mut unavailable = resolve(unavailable, replicas, Round::Down).unwrap_or(0);
        if surge == 0 && unavailable == 0 {
            // Neither more nor fewer than wanted: nothing could ever move.
            unavailable = 1;
        }
        let unavailable = if replicas == 0 { 0 } else { unavailable.min(replicas) };
        Bounds { replicas, surge, unavailable, rolling }
    }
}

fn total(sets: &[Set]) -> i32 {
    sets.iter().map(|set| set.replicas).sum()
}

/// The size of the new ReplicaSet: as large as the surge allows.
pub fn new_size(bounds: Bounds, new: i32, all: i32) -> i32 {
    if !bounds.rolling {
        return bounds.replicas;
    }
    let room = bounds.replicas.saturating_add(bounds.surge) - all;
    if room <= 0 { new } else { new + room.min(bounds.replicas - new).max(0) }
}

/// The next step of the new ReplicaSet, if there is one.
pub fn scale_new(bounds: Bounds, new: &Set, old: &[Set]) -> Option<Resize> {
    let size = if new.replicas > bounds.replicas { bounds.replicas } else { new_size(bounds, new.replicas, new.replicas + total(old)) };
    (size != new.replicas).then(|| (new.name.clone(), size))
}

/// The next step of the old ReplicaSets: first what is not available anyway, then as much as availability allows.
pub fn scale_old(bounds: Bounds, new: &Set, old: &[Set]) -> Vec<Resize> {
    let mut sets: Vec<Set> = old.iter().filter(|set| set.replicas > 0).cloned().collect();
    sets.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    let least = bounds.replicas - bounds.unavailable;
    let new_unavailable = new.replicas - new.available;
    let mut most = total(&sets) + new.replicas - least - new_unavailable;
    if most <= 0 {
        return Vec::new();
    }
    for set in &mut sets {
        let unhealthy = (set.replicas - set.available).clamp(0, most.max(0));
        set.replicas -= unhealthy;
        most -= unhealthy;
    }
    let available = new.available + sets.iter().map(|set| set.available).sum::<i32>();
    let mut spare = (available - least).max(0);
    for set in &mut sets {
        let step = set.replicas.min(spare);
        set.replicas -= step;
        spare -= step;
    }
    let before = |name: &str| old.iter().find(|set| set.name == name).map_or(0, |set| set.replicas);
    sets.into_iter().filter(|set| set.replicas != before(&set.name)).map(|set| (set.name, set.replicas)).collect()
}

/// Whether the Deployment has been resized since its ReplicaSets were last scaled.
pub fn was_resized(bounds: Bounds, sets: &[Set]) -> bool {
    sets.iter().any(|set| set.replicas > 0 && set.desired.is_some_and(|desired| desired != bounds.replicas))
}

/// The sizes after the Deployment was resized. `status` is the Deployment's own count of replicas.
pub fn resize(bounds: Bounds, new: Option<&Set>, old: &[Set], status: i32) -> Vec<Resize> {
    let mut active: Vec<Set> = old.iter().chain(new).filter(|set| set.replicas > 0).cloned().collect();
    if active.len() <= 1 {
        let newest_old = old.iter().max_by_key(|set| set.created);
        let only = active.pop().or_else(|| new.or(newest_old).cloned());
        return only.filter(|set| set.replicas != bounds.replicas).map(|set| (set.name, bounds.replicas)).into_iter().collect();
    }
    if let Some(new) = new
        && new.replicas == bounds.replicas
        && new.desired == Some(bounds.replicas)
        && new.available == bounds.replicas
    {
        return old.iter().filter(|set| set.replicas > 0).map(|set| (set.name.clone(), 0)).collect();
    }
    if !bounds.rolling {
        return Vec::new();
    }
    let allowed = if bounds.replicas > 0 { bounds.replicas + bounds.surge } else { 0 };
    let difference = allowed - total(&active);
    // Larger ones first; of equal ones the newer first when growing, the older first when shrinking.
    active.sort_by(|a, b| {
        let age = if difference > 0 { b.created.cmp(&a.created) } else { a.created.cmp(&b.created) };
        b.replicas.cmp(&a.replicas).then(age)
    });
    let mut spread = 0;
    let mut sizes: Vec<Resize> = Vec::new();
    for set in &active {
        let part = proportion(bounds, set, difference, spread, status);
        spread += part;
        sizes.push((set.name.clone(), set.replicas + part));
    }
    if let Some((_, size)) = sizes.first_mut() {
        *size = (*size + difference - spread).max(0);
    }
    // All of them, also those that keep their size: their annotations must say how large the Deployment is now.
    sizes
}

fn proportion(bounds: Bounds, set: &Set, difference: i32, spread: i32, status: i32) -> i32 {
    if set.replicas == 0 || difference == 0 || difference == spread {
        return 0;
    }
    let allowed = difference - spread;
    let fraction = fraction(bounds, set, status);
    if difference > 0 { fraction.min(allowed) } else { fraction.max(allowed) }
}

fn fraction(bounds: Bounds, set: &Set, status: i32) -> i32 {
    if bounds.replicas == 0 {
        return -set.replicas;
    }
    let before = set.max.filter(|max| *max > 0).unwrap_or(status);
    if before == 0 {
        return 0;
    }
    let size = f64::from(set.replicas) * f64::from(bounds.replicas + bounds.surge) / f64::from(before);
    // The value is bounded by the sizes of Deployments, far below what an i32 holds.
    size.round() as i32 - set.replicas
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(replicas: i32, surge: i32, unavailable: i32) -> Bounds {
        Bounds { replicas, surge, unavailable, rolling: true }
    }

    fn set(name: &str, replicas: i32, available: i32) -> Set {
        Set { name: name.into(), replicas, available, ..Set::default() }
    }

    #[test]
    fn percentages_round_surge_up_and_unavailability_down() {
        let mut deployment = Deployment::default();
        deployment.spec.replicas = Some(3);
        assert_eq!(Bounds::of(&deployment), bounds(3, 1, 0));
        deployment.spec.replicas = Some(10);
        assert_eq!(Bounds::of(&deployment), bounds(10, 3, 2));
    }

    #[test]
    fn a_rollout_that_may_neither_grow_nor_shrink_may_miss_one() {
        let deployment: Deployment = serde_json::from_value(serde_json::json!({"spec": {"replicas": 3,
            "selector": {}, "template": {}, "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}}}))
        .unwrap();
        assert_eq!(Bounds::of(&deployment), bounds(3, 0, 1));
    }

    #[test]
    fn the_new_set_grows_as_far_as_the_surge_allows() {
        assert_eq!(scale_new(bounds(10, 3, 2), &set("new", 0, 0), &[set("old", 10, 10)]), Some(("new".into(), 3)));
        assert_eq!(scale_new(bounds(10, 3, 2), &set("new", 3, 0), &[set("old", 10, 10)]), None);
        assert_eq!(scale_new(bounds(10, 3, 2), &set("new", 12, 0), &[]), Some(("new".into(), 10)));
    }

    #[test]
    fn the_old_sets_shrink_only_as_far_as_availability_allows() {
        let old = [set("old", 10, 10)];
        assert_eq!(scale_old(bounds(10, 3, 2), &set("new", 3, 0), &old), [("old".into(), 8)]);
        assert_eq!(scale_old(bounds(10, 3, 2), &set("new", 5, 0), &[set("old", 8, 8)]), []);
        assert_eq!(scale_old(bounds(10, 3, 2), &set("new", 5, 2), &[set("old", 8, 8)]), [("old".into(), 6)]);
        assert_eq!(scale_old(bounds(3, 1, 0), &set("new", 1, 1), &[set("old", 3, 3)]), [("old".into(), 2)]);
    }

    #[test]
    fn unhealthy_pods_of_old_sets_go_first() {
        // Nobody misses what is not available.
        let old = [set("bad", 4, 0), set("good", 8, 8)];
        assert_eq!(scale_old(bounds(10, 3, 2), &set("new", 1, 1), &old), [("bad".into(), 0), ("good".into(), 7)]);
    }

    #[test]
    fn a_resize_without_a_rollout_goes_to_the_only_set() {
        assert_eq!(resize(bounds(5, 1, 0), Some(&set("new", 3, 3)), &[set("old", 0, 0)], 3), [("new".into(), 5)]);
        assert_eq!(resize(bounds(0, 1, 0), Some(&set("new", 3, 3)), &[], 3), [("new".into(), 0)]);
    }

    #[test]
    fn a_resize_during_a_rollout_is_spread_in_proportion() {
        let with_max = |set: Set, max| Set { max: Some(max), desired: Some(10), ..set };
        let (new, old) = (with_max(set("new", 5, 2), 13), with_max(set("old", 8, 8), 13));
        // From 10 (+3) to 20 (+6): 13 Pods become 26.
        let mut sizes = resize(bounds(20, 6, 4), Some(&new), &[old], 13);
        sizes.sort();
        assert_eq!(sizes, [("new".into(), 10), ("old".into(), 16)]);
    }

    #[test]
    fn a_resize_is_noticed_by_the_annotation() {
        let stale = Set { desired: Some(3), ..set("new", 3, 3) };
        assert!(was_resized(bounds(5, 1, 0), std::slice::from_ref(&stale)));
        assert!(!was_resized(bounds(3, 1, 0), &[stale]));
    }
}
