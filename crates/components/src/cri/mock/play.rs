//! Plays what a container would do: prints, waits, ends.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::super::LogLine;
use super::Shared;
use super::behaviour::Behaviour;
use super::log::Log;
use super::script::Step;

/// How a play ends.
enum End {
    /// By itself.
    Exit(i32, Option<String>),
    /// Not at all.
    Never,
}

/// One container's play.
pub(super) struct Play {
    pub shared: Arc<Shared>,
    pub id: String,
    pub log: Arc<Log>,
    pub behaviour: Behaviour,
    pub steps: Option<Vec<Step>>,
    pub ends_by_default: bool,
}

impl Play {
    /// Does at once what needs no waiting, and says whether the rest needs a task of its own: most containers only ever run.
    pub(super) fn begin(&self) -> bool {
        for line in &self.behaviour.log_lines {
            self.print(line, false);
        }
        self.behaviour.run_time.is_some() || self.steps.is_some() || self.ends_by_default
    }

    /// The rest, until the container ends.
    pub(super) async fn perform(self) {
        let end = match (self.behaviour.run_time, &self.steps) {
            (Some(run_time), _) => {
                self.shared.clock.sleep(run_time).await;
                End::Exit(self.behaviour.exit_code.unwrap_or_default(), self.behaviour.exit_reason.clone())
            }
            (None, Some(steps)) => match self.steps(steps).await {
                Some(code) => End::Exit(code, None),
                None => End::Never,
            },
            (None, None) if self.ends_by_default => End::Exit(0, None),
            (None, None) => End::Never,
        };
        if let End::Exit(code, reason) = end {
            self.shared.exit(&self.id, code, reason);
        }
    }

    fn print(&self, text: &str, stderr: bool) {
        let time = self.shared.clock.now();
        let text = if text.contains("$(date)") { text.replace("$(date)", &date(time)) } else { text.to_owned() };
        self.log.push(LogLine { time, stderr, text });
    }

    /// Runs the steps; `None` if they never come to an end.
    fn steps<'a>(&'a self, steps: &'a [Step]) -> BoxFuture<'a, Option<i32>> {
        async move {
            for step in steps {
                match step {
                    Step::Print(text, stderr) => self.print(text, *stderr),
                    Step::Sleep(duration) if duration.is_zero() => {}
                    Step::Sleep(duration) => self.shared.clock.sleep(*duration).await,
                    Step::Forever => return None,
                    Step::Exit(code) => return Some(*code),
                    Step::Loop(body) => loop {
                        let started = self.shared.clock.now();
                        if let Some(code) = self.steps(body).await
                            && body.iter().any(|step| matches!(step, Step::Exit(_)))
                        {
                            return Some(code);
                        }
                        // A loop that does not wait must not take the whole thread.
                        if self.shared.clock.now().duration_since(started).is_zero() || !waits(body) {
                            self.shared.clock.sleep(Duration::from_millis(10)).await;
                        }
                    },
                }
            }
            Some(0)
        }
        .boxed()
    }
}

fn waits(steps: &[Step]) -> bool {
    steps.iter().any(|step| match step {
        Step::Sleep(duration) => !duration.is_zero(),
        Step::Forever => true,
        Step::Loop(body) => waits(body),
        Step::Print(..) | Step::Exit(_) => false,
    })
}

/// The time as `date` prints it.
fn date(time: jiff::Timestamp) -> String {
    time.to_zoned(jiff::tz::TimeZone::UTC).strftime("%a %b %e %H:%M:%S UTC %Y").to_string()
}
