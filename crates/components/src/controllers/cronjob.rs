//! CronJob: Jobs by the clock.

pub mod decide;
pub mod schedule;

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use k8s_openapi::{
    api::batch::v1::{CronJob, Job},
    apimachinery::pkg::apis::meta::v1::Time,
};

use crate::{
    clock::{Clock, left},
    events::{EventType, ObjectReference, Recorder, regarding},
    runtime::{Component, Context, Error, Identity, Informer, Key, Outcome, Propagation, Requeue, Source, Writer, controller_of},
};
use schedule::Schedule;

const ACCOUNT: &str = "cronjob-controller";

struct Controller {
    crons: Informer<CronJob>,
    jobs: Informer<Job>,
    writer: Writer<CronJob>,
    job_writer: Writer<Job>,
    recorder: Recorder,
    clock: Clock,
}

/// Runs the controller.
pub fn run(context: Context) -> BoxFuture<'static, ()> {
    let client = context.client(&Identity::controller(ACCOUNT));
    let (crons, jobs) = (context.watches.of(), context.watches.of());
    context.run(Controller {
        writer: Writer::new(client.clone(), &crons),
        job_writer: Writer::new(client.clone(), &jobs),
        recorder: context.recorder(client, ACCOUNT),
        crons,
        jobs,
        clock: context.clock.clone(),
    })
}

impl Component for Controller {
    const NAME: &'static str = "cronjob-controller";

    fn sources(&self) -> Vec<Source> {
        vec![Source::own(&self.crons), Source::controlled(&self.jobs, "batch", "CronJob")]
    }

    async fn reconcile(self: Arc<Self>, key: Key) -> Outcome {
        let Some(cron) = self.crons.find(&key) else { return Ok(Requeue::Done) };
        let mut round = Round { controller: &self, about: regarding(&*cron), cron: (*cron).clone() };
        let uid = cron.metadata.uid.as_deref().unwrap_or_default();
        let mut jobs = self.jobs.owned_by(uid);
        jobs.retain(|job| controller_of(&job.metadata).is_some_and(|owner| owner.uid == uid));
        round.clean_up(&jobs).await?;
        round.follow(&jobs).await?;
        let outcome = round.start().await;
        round.write(&cron).await?;
        outcome
    }
}

struct Round<'a> {
    controller: &'a Controller,
    about: ObjectReference,
    cron: CronJob,
}

impl Round<'_> {
    fn tell(&self, r#type: EventType, reason: &str, message: impl Into<String>) {
        self.controller.recorder.event(&self.about, r#type, reason, message);
    }

    /// Keeps the list of running Jobs.
    async fn follow(&mut self, jobs: &[Arc<Job>]) -> Result<(), Error> {
        let mut gone = Vec::new();
        let status = self.cron.status.get_or_insert_default();
        let active = status.active.get_or_insert_default();
        let mut events = Vec::new();
        for job in jobs {
            let name = job.metadata.name.as_deref().unwrap_or_default();
            let listed = active.iter().any(|reference| reference.uid == job.metadata.uid);
            match decide::ending(job.status.as_ref()) {
                None if !listed && job.metadata.deletion_timestamp.is_none() => {
                    let message = format!("Saw a job that the controller did not create or forgot: {name}");
                    events.push((EventType::Warning, "UnexpectedJob", message));
                }
                Some(ending) if listed => {
                    active.retain(|reference| reference.uid != job.metadata.uid);
                    events.push((EventType::Normal, "SawCompletedJob", format!("Saw completed job: {name}, condition: {ending}")));
                }
                _ => {}
            }
            if let Some(at) = decide::completed_at(job).filter(|at| status.last_successful_time.as_ref().is_none_or(|last| last < at)) {
                status.last_successful_time = Some(at);
            }
        }
        for reference in active.iter() {
            if jobs.iter().all(|job| job.metadata.uid != reference.uid) {
                gone.push(reference.clone());
            }
        }
        for reference in gone {
            active.retain(|other| other.uid != reference.uid);
            let name = reference.name.unwrap_or_default();
            events.push((EventType::Normal, "MissingJob", format!("Active job went missing: {name}")));
        }
        for (r#type, reason, message) in events {
            self.tell(r#type, reason, message);
        }
        Ok(())
    }

    /// Starts the Job that is due, if it may.
    async fn start(&mut self) -> Outcome {
        let now = self.controller.clock.now();
        if self.cron.metadata.deletion_timestamp.is_some() || self.cron.spec.suspend == Some(true) {
            return Ok(Requeue::Done);
        }
        let zone = match decide::zone(&self.cron) {
            Ok(zone) => zone,
            Err(message) => {
                self.tell(EventType::Warning, "UnknownTimeZone", message);
                return Ok(Requeue::Done);
            }
        };
        let schedule: Schedule = match self.cron.spec.schedule.parse() {
            Ok(schedule) => schedule,
            Err(error) => {
                let message = format!("unparseable schedule: {:?} : {error}", self.cron.spec.schedule);
                self.tell(EventType::Warning, "UnparseableSchedule", message);
                return Ok(Requeue::Done);
            }
        };
        let due = decide::due(&self.cron, &schedule, &zone, now);
        // A moment more, so that it is certainly due when it is looked at.
        let again = Requeue::after(due.next.map(|next| left(now, next) + Duration::from_millis(10)));
        let Some(time) = due.now else { return Ok(again) };
        if due.many_missed {
            let message = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            self.tell(EventType::Warning, "TooManyMissedTimes", message);
        }
        if decide::is_too_late(&self.cron, time, now) {
            let when = time.strftime("%a, %d %b %Y %H:%M:%S +0000");
            self.tell(EventType::Warning, "MissSchedule", format!("Missed scheduled time to start a job: {when}"));
            return Ok(again);
        }
        let active = self.cron.status.get_or_insert_default().active.clone().unwrap_or_default();
        let name = decide::job_name(&self.cron, time);
        if active.iter().any(|reference| reference.name.as_ref() == Some(&name)) {
            return Ok(again);
        }
        match self.cron.spec.concurrency_policy.as_deref() {
            Some("Forbid") if !active.is_empty() => {
                let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
                self.tell(EventType::Normal, "JobAlreadyActive", message);
                return Ok(again);
            }
            Some("Replace") => {
                for reference in active {
                    let namespace = reference.namespace.as_deref().unwrap_or_default();
                    if let Some(job) = self.controller.jobs.get(namespace, reference.name.as_deref().unwrap_or_default()) {
                        self.delete(&job).await?;
                    }
                    self.cron.status.get_or_insert_default().active.get_or_insert_default().retain(|other| other.uid != reference.uid);
                }
            }
            _ => {}
        }
        self.create(time, &decide::job(&self.cron, time, &zone)).await?;
        Ok(again)
    }

    async fn create(&mut self, time: jiff::Timestamp, job: &Job) -> Result<(), Error> {
        let created = match self.controller.job_writer.create(job).await {
            Ok(created) => {
                let name = created.metadata.name.as_deref().unwrap_or_default();
                self.tell(EventType::Normal, "SuccessfulCreate", format!("Created job {name}"));
                created
            }
            // Made in an earlier round whose status was not written.
            Err(error) if error.is_already_exists() => self.controller.job_writer.get(&Key::of(&job.metadata)).await?,
            Err(error) => {
                if !error.is_namespace_terminating() {
                    self.tell(EventType::Warning, "FailedCreate", format!("Error creating job: {}", error.message()));
                }
                return Err(error);
            }
        };
        let status = self.cron.status.get_or_insert_default();
        if decide::ending(created.status.as_ref()).is_none() {
            status.active.get_or_insert_default().push(decide::active(&created));
        }
        status.last_schedule_time = Some(Time(time));
        Ok(())
    }

    async fn clean_up(&mut self, jobs: &[Arc<Job>]) -> Result<(), Error> {
        let jobs: Vec<&Job> = jobs.iter().map(|job| &**job).filter(|job| job.metadata.deletion_timestamp.is_none()).collect();
        for job in decide::expired(&self.cron, &jobs) {
            self.delete(job).await?;
        }
        Ok(())
    }

    async fn delete(&self, job: &Job) -> Result<(), Error> {
        match self.controller.job_writer.delete(job, Propagation::Background).await {
            Ok(()) => {
                let name = job.metadata.name.as_deref().unwrap_or_default();
                self.tell(EventType::Normal, "SuccessfulDelete", format!("Deleted job {name}"));
                Ok(())
            }
            Err(error) => {
                self.tell(EventType::Warning, "FailedDelete", format!("Deleted job: {}", error.message()));
                Err(error)
            }
        }
    }

    async fn write(&mut self, before: &CronJob) -> Result<(), Error> {
        let status = self.cron.status.get_or_insert_default();
        status.active = status.active.take().filter(|active| !active.is_empty());
        if Some(&*status) != before.status.as_ref() && (before.status.is_some() || *status != Default::default()) {
            self.controller.writer.update_status(&self.cron).await?;
        }
        Ok(())
    }
}
