//! The audit of a request: when it arrived, who asked, how it ended. Two layers: [`layer`] outside of everything that may refuse sees
//! how it ends, [`evaluate`] behind authentication asks the policy whether more is wanted than that, and captures bodies where it is.
//! Nothing is decoded or formatted here; that is the recorder's work.

use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Instant;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures::FutureExt;
use http::{HeaderValue, Request, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;

use super::{Layer, Next, Refused, context};
use crate::api::negotiate::of_error;
use crate::api::representation::Answered;
use crate::audit::latency::SLOW;
use crate::audit::policy::Scope;
use crate::audit::record::{Arrival, Captured, Ending, LARGEST_BODY, Record, Told};
use crate::audit::under_way::Token;
use crate::audit::{Level, Stage, redact};
use crate::authn::InProcess;
use crate::gateway::Gateway;
use crate::gateway::listener::Peer;
use crate::object::list::List;
use crate::status::Status;

/// Sees how a request ends.
#[derive(Clone, Copy)]
pub struct Audit;

impl Layer for Audit {
    async fn call(&self, gateway: &Arc<Gateway>, mut request: Request<Body>, next: &impl Next) -> Result<Response, Refused> {
        let context = context(&request)?;
        let Some(token) = gateway.audit.under_way.begin() else {
            return Err(Status::new(503, "ServiceUnavailable", "the server is stopping").retry_after(1).into());
        };
        let headers = request.headers();
        let arrival = Arc::new(Arrival {
            uri: request.uri().clone(),
            received: gateway.api.clock.now(),
            peer: request.extensions().get::<Peer>().map(|peer| peer.0.ip()),
            forwarded_for: headers.get("x-forwarded-for").cloned(),
            real_ip: headers.get("x-real-ip").cloned(),
            cause: headers.get(usher_components::runtime::cause::HEADER).cloned(),
            accept: headers.get(header::ACCEPT).cloned(),
            in_process: request.extensions().get::<InProcess>().is_some(),
            told: Told::default(),
            context,
        });
        // Bodies of requests about Secrets and tokens are read at any level: what is in them must not be told in a message either.
        let early = gateway.audit.policy().is_early() || redact::is_sensitive(&arrival.context.info);
        let tap = early.then(|| Arc::new(Tap { arrival: arrival.clone(), scope: OnceLock::new(), request: Mutex::default() }));
        if let Some(tap) = &tap {
            request.extensions_mut().insert(tap.clone());
        }
        let mut underway = Underway { gateway: gateway.clone(), arrival, tap, over: false, token };
        match AssertUnwindSafe(next.run(request)).catch_unwind().await {
            Ok(response) => Ok(underway.respond(response)),
            Err(panic) => {
                underway.finish(Stage::Panic, Ending::Panic(panic_text(&*panic)), None);
                resume_unwind(panic)
            }
        }
    }
}

/// Asks the policy, tells of the arrival, and captures the request's body, as far as that is wanted.
#[derive(Clone, Copy)]
pub struct Evaluate;

impl Layer for Evaluate {
    async fn call(&self, gateway: &Arc<Gateway>, mut request: Request<Body>, next: &impl Next) -> Result<Response, Refused> {
        let Some(tap) = request.extensions_mut().remove::<Arc<Tap>>() else { return Ok(next.run(request).await) };
        let context = &tap.arrival.context;
        let scope = gateway.audit.policy().evaluate(context.authenticated().map(|user| &**user), &context.info);
        let _ = tap.scope.set(scope);
        if scope.level > Level::None && !scope.omit_stages.contains(Stage::RequestReceived) && gateway.audit.has_sinks() {
            gateway.audit.record(Record {
                arrival: tap.arrival.clone(),
                stage: Stage::RequestReceived,
                at: tap.arrival.received,
                took: context.trace.start().elapsed(),
                ending: Ending::Open,
                scope: Some(scope),
                request: None,
                response: None,
                goes_on: true,
            });
        }
        let wanted = scope.level >= Level::Request || redact::is_sensitive(&context.info);
        // A patch stands for itself, and nothing else has an object in it.
        if wanted && matches!(context.info.verb, "create" | "update") {
            context.want_body();
        }
        if wanted && !request.body().is_end_stream() {
            tap.request.lock().content_type = request.headers().get(header::CONTENT_TYPE).cloned();
            request = request.map(|body| Body::new(RequestBody { body, tap }));
        }
        Ok(next.run(request).await)
    }
}

/// What is captured of a request that the policy wants more of.
struct Tap {
    arrival: Arc<Arrival>,
    scope: OnceLock<Scope>,
    request: Mutex<Captured>,
}

/// A request that has not been recorded yet. Dropped before it is over, it is one whose client went away.
struct Underway {
    gateway: Arc<Gateway>,
    arrival: Arc<Arrival>,
    tap: Option<Arc<Tap>>,
    over: bool,
    token: Token,
}

impl Underway {
    fn respond(mut self, response: Response) -> Response {
        let code = response.status().as_u16();
        let extensions = response.extensions();
        let ending = match (extensions.get::<Refused>(), extensions.get::<Answered>()) {
            // Who takes a Status in no form gets one all the same, but a real server records nothing of it but the code.
            (Some(_), _) if !self.takes_errors() => Ending::Code(code),
            (Some(Refused(status)), _) => Ending::Refused(Box::new(status.clone())),
            (_, Some(Answered(status))) => Ending::Answered(code, status.clone()),
            _ => Ending::Code(code),
        };
        let context = &self.arrival.context;
        if context.authenticated().is_none() {
            // A real server records nothing but this of a request that nobody is known to have sent.
            self.finish(Stage::ResponseStarted, ending, None);
            return response;
        }
        let has_body = matches!(ending, Ending::Code(_)) && extensions.get::<Refused>().is_none();
        let long = context.info.is_long_running();
        if long {
            self.send(Stage::ResponseStarted, ending.clone(), None, true);
        }
        let captured = match self.scope() {
            Some(scope) if has_body && !long && scope.level >= Level::RequestResponse => self.captured(&response),
            _ => None,
        };
        // A list may be long, and its reader slow: it is over when it has been read. What is slow already tells that part too.
        let list = has_body && (context.info.verb == "list" || context.trace.start().elapsed() > SLOW);
        if list || has_body && long || captured.is_some() {
            let since = list.then(Instant::now);
            self.token = self.gateway.audit.under_way.answered();
            return response.map(|body| Body::new(ResponseBody { body, underway: Some(self), ending, captured, since }));
        }
        self.finish(Stage::ResponseComplete, ending, None);
        response
    }

    fn takes_errors(&self) -> bool {
        let accept = self.arrival.accept.as_ref().and_then(|accept| accept.to_str().ok()).unwrap_or_default();
        of_error(accept).is_some()
    }

    fn scope(&self) -> Option<Scope> {
        self.tap.as_ref().and_then(|tap| tap.scope.get()).copied()
    }

    /// Room for the body of a response that holds an object; a list is there already.
    fn captured(&self, response: &Response) -> Option<Captured> {
        let (info, headers) = (&self.arrival.context.info, response.headers());
        let content_type = headers.get(header::CONTENT_TYPE)?;
        let gzip = match headers.get(header::CONTENT_ENCODING).map(HeaderValue::as_bytes) {
            None => false,
            Some(b"gzip") => true,
            Some(_) => return None,
        };
        let holds_object = info.is_resource || info.path.starts_with("/api");
        let list = response.extensions().get::<Arc<List>>().map(|list| Captured::of_list(list, LARGEST_BODY));
        let captured = list.unwrap_or_else(|| Captured { gzip, ..Captured::default() });
        let is_wanted = holds_object && content_type.as_bytes().starts_with(b"application/");
        is_wanted.then(|| Captured { content_type: Some(content_type.clone()), ..captured })
    }

    fn finish(&mut self, stage: Stage, ending: Ending, response: Option<Captured>) {
        if !std::mem::replace(&mut self.over, true) {
            self.send(stage, ending, response, false);
        }
    }

    fn send(&self, stage: Stage, ending: Ending, response: Option<Captured>, goes_on: bool) {
        let request = self.tap.as_ref().map(|tap| match goes_on {
            true => tap.request.lock().clone(),
            false => std::mem::take(&mut *tap.request.lock()),
        });
        let request = request.map(Box::new);
        self.gateway.audit.record(Record {
            arrival: self.arrival.clone(),
            stage,
            at: self.gateway.api.clock.now(),
            took: self.arrival.context.trace.start().elapsed(),
            ending,
            scope: self.scope(),
            request,
            response: response.map(Box::new),
            goes_on,
        });
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        self.finish(Stage::ResponseComplete, Ending::ClosedEarly, None);
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

/// The body of a request that is captured as it is read.
struct RequestBody {
    body: Body,
    tap: Arc<Tap>,
}

impl HttpBody for RequestBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(piece) = frame.as_ref().and_then(|frame| frame.as_ref().ok()).and_then(Frame::data_ref) {
            self.tap.request.lock().add(piece, LARGEST_BODY);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a response at whose end the request is over.
struct ResponseBody {
    body: Body,
    underway: Option<Underway>,
    ending: Ending,
    captured: Option<Captured>,
    since: Option<Instant>,
}

impl ResponseBody {
    fn finish(&mut self) {
        if let Some(mut underway) = self.underway.take() {
            if let Some(since) = self.since {
                underway.arrival.context.trace.step("respond", "body", "sent", since);
            }
            underway.finish(Stage::ResponseComplete, self.ending.clone(), self.captured.take());
        }
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let (Some(captured), Some(piece)) = (&mut self.captured, frame.data_ref()) {
                    captured.add(piece, LARGEST_BODY);
                }
            }
            end => {
                // A list that breaks off is no JSON.
                if let (Some(captured), Some(_)) = (&mut self.captured, end) {
                    captured.cut_off = true;
                }
                self.finish();
            }
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        if let Some(captured) = &mut self.captured {
            captured.cut_off = !self.body.is_end_stream();
        }
        self.finish();
    }
}
