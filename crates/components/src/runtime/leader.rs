//! Leader election by Lease: of several processes that could run the same components, one does.
//!
//! The holder renews its Lease; the others look at it every now and then, and take it over when it has not been
//! renewed for as long as it says. A holder that cannot renew in time stops its components before another may start.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};

use super::component::Error;
use crate::clock::{Clock, later};

/// Who stands for election, and how. The name of the Lease is up to what is to be run ([`super::Entry::lease`]).
#[derive(Clone, Debug)]
pub struct LeaderElection {
    /// The Lease's namespace, usually `kube-system`.
    pub namespace: String,
    /// This process, such as `hostname_uuid`.
    pub identity: String,
    /// After how long without renewal others may take over.
    pub lease_duration: Duration,
    /// After how long without a successful renewal the holder gives up.
    pub renew_deadline: Duration,
    /// How often it is tried.
    pub retry_period: Duration,
}

impl LeaderElection {
    /// The times that Kubernetes' own components use.
    pub fn new(identity: impl Into<String>) -> Self {
        LeaderElection {
            namespace: "kube-system".into(),
            identity: identity.into(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// What an attempt may do with the Lease it found.
#[derive(Debug, PartialEq)]
enum Move {
    /// Somebody else holds it.
    Wait,
    /// Write this.
    Write(LeaseSpec),
}

/// Decides on an attempt at `now`. `unchanged_since` is when this process first saw the Lease as it is: only that is
/// compared with the duration, because the holder's clock may differ from ours.
fn decide(lease: Option<&LeaseSpec>, unchanged_since: Timestamp, election: &LeaderElection, now: Timestamp) -> Move {
    let seconds = i32::try_from(election.lease_duration.as_secs()).unwrap_or(i32::MAX);
    let mine = |acquired: Option<MicroTime>, transitions: i32| {
        Move::Write(LeaseSpec {
            holder_identity: Some(election.identity.clone()),
            lease_duration_seconds: Some(seconds),
            acquire_time: acquired.or(Some(MicroTime(now))),
            renew_time: Some(MicroTime(now)),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        })
    };
    let Some(lease) = lease else {
        return mine(None, 0);
    };
    let transitions = lease.lease_transitions.unwrap_or(0);
    match lease.holder_identity.as_deref() {
        Some(holder) if holder == election.identity => mine(lease.acquire_time.clone(), transitions),
        None | Some("") => mine(None, transitions + 1),
        Some(_) => {
            let held = lease.lease_duration_seconds.and_then(|s| u64::try_from(s).ok()).unwrap_or(15);
            if later(unchanged_since, Duration::from_secs(held)) > now { Move::Wait } else { mine(None, transitions + 1) }
        }
    }
}

/// One process's part in an election.
pub struct Candidate {
    api: Api<Lease>,
    lease: &'static str,
    election: LeaderElection,
    clock: Clock,
    seen: Option<(LeaseSpec, Timestamp)>,
}

impl Candidate {
    /// A candidate for `lease`, which does not hold it yet.
    pub fn new(client: Client, lease: &'static str, election: LeaderElection, clock: Clock) -> Self {
        let api = Api::namespaced(client, &election.namespace);
        Candidate { api, lease, election, clock, seen: None }
    }

    /// Waits until this process holds the Lease.
    pub async fn acquire(&mut self) {
        loop {
            match self.attempt().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    tracing::debug!(lease = self.lease, %error, "the Lease cannot be had")
                }
            }
            self.clock.sleep(self.election.retry_period).await;
        }
    }

    /// Renews for as long as it can; returns when the Lease is lost.
    pub async fn hold(&mut self) {
        let mut renewed = self.clock.now();
        loop {
            self.clock.sleep(self.election.retry_period).await;
            let left = crate::clock::left(self.clock.now(), later(renewed, self.election.renew_deadline));
            let clock = self.clock.clone();
            match clock.timeout(left, self.attempt()).await {
                Ok(Ok(true)) => renewed = self.clock.now(),
                Ok(Ok(false)) => return,
                Ok(Err(error)) => {
                    tracing::debug!(lease = self.lease, %error, "the Lease could not be renewed");
                    if left.is_zero() {
                        return;
                    }
                }
                Err(_) => return,
            }
        }
    }

    /// Gives the Lease back, so that another need not wait.
    pub async fn release(&mut self) {
        // The last renewal may still be on its way and win; then it must be tried again.
        for _ in 0..3 {
            let Ok(Some(mut lease)) = self.api.get_opt(self.lease).await else { return };
            let Some(spec) = &mut lease.spec else { return };
            if spec.holder_identity.as_deref() != Some(&self.election.identity) {
                return;
            }
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            match self.api.replace(self.lease, &PostParams::default(), &lease).await.map_err(Error::from) {
                Err(error) if error.is_conflict() => {}
                // If it fails, the others wait for as long as the Lease says.
                _ => return,
            }
        }
    }

    async fn attempt(&mut self) -> Result<bool, Error> {
        // A clock that is moved by hand waits for renewals, so that no Lease runs out only because it moves fast.
        let _busy = self.clock.busy();
        let lease = self.api.get_opt(self.lease).await?;
        let now = self.clock.now();
        let spec = lease.as_ref().and_then(|lease| lease.spec.clone());
        let since = match (&self.seen, &spec) {
            (Some((old, since)), Some(new)) if old == new => *since,
            _ => now,
        };
        self.seen = spec.clone().map(|spec| (spec, since));
        let Move::Write(spec) = decide(spec.as_ref(), since, &self.election, now) else {
            return Ok(false);
        };
        let written = match lease {
            Some(mut lease) => {
                lease.spec = Some(spec);
                self.api.replace(self.lease, &PostParams::default(), &lease).await
            }
            None => {
                let metadata = ObjectMeta { name: Some(self.lease.to_owned()), ..ObjectMeta::default() };
                self.api.create(&PostParams::default(), &Lease { metadata, spec: Some(spec) }).await
            }
        };
        match written.map_err(Error::from) {
            Ok(_) => Ok(true),
            // Somebody was faster.
            Err(error) if error.is_conflict() => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn election() -> LeaderElection {
        LeaderElection::new("me")
    }

    fn held_by(holder: &str) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_duration_seconds: Some(15),
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        }
    }

    fn holder(decision: &Move) -> Option<(&str, i32)> {
        match decision {
            Move::Wait => None,
            Move::Write(spec) => Some((spec.holder_identity.as_deref()?, spec.lease_transitions?)),
        }
    }

    #[test]
    fn a_lease_that_is_not_there_is_taken() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(holder(&decide(None, now, &election(), now)), Some(("me", 0)));
    }

    #[test]
    fn a_lease_is_taken_over_only_after_it_has_run_out() {
        let start = Timestamp::UNIX_EPOCH;
        let lease = held_by("other");
        let early = later(start, Duration::from_secs(14));
        let late = later(start, Duration::from_secs(16));
        assert_eq!(decide(Some(&lease), start, &election(), early), Move::Wait);
        assert_eq!(holder(&decide(Some(&lease), start, &election(), late)), Some(("me", 4)));
    }

    #[test]
    fn the_holder_renews_without_a_transition() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(holder(&decide(Some(&held_by("me")), now, &election(), now)), Some(("me", 3)));
    }

    #[test]
    fn a_lease_given_back_is_taken_at_once() {
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(holder(&decide(Some(&held_by("")), now, &election(), now)), Some(("me", 4)));
    }
}
