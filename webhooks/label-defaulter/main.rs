//! A mutating webhook that gives objects the labels they lack. Which labels, and the patch, is [`labels`]; the rest is HTTP.

mod labels;

use std::path::PathBuf;

use axum::routing::post;
use axum::{Json, Router};
use clap::Parser;
use serde_json::Value;

/// Gives objects default labels.
#[derive(Parser)]
struct Options {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:9444")]
    listen: String,
    /// The certificate chain, PEM.
    #[arg(long)]
    cert: PathBuf,
    /// Its key, PEM.
    #[arg(long)]
    key: PathBuf,
    /// A default label, `key=value`; may be given more than once.
    #[arg(long = "label", default_value = "team=unassigned")]
    labels: Vec<String>,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let options = Options::parse();
    let defaults = labels::parse(&options.labels)?;
    let handler = move |Json(review): Json<Value>| async move { Json(labels::answer(&review, &defaults)) };
    let router = Router::new().route("/mutate", post(handler));
    serve::serve(&options.listen, &options.cert, &options.key, router).await
}
