//! A mutating webhook that adds a container to Pods. What it adds is decided by [`inject`]; the rest is HTTP.

mod inject;

use std::path::PathBuf;

use axum::routing::post;
use axum::{Json, Router};
use clap::Parser;
use serde_json::Value;

/// Adds a sidecar to Pods.
#[derive(Parser)]
struct Options {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:9443")]
    listen: String,
    /// The certificate chain, PEM.
    #[arg(long)]
    cert: PathBuf,
    /// Its key, PEM.
    #[arg(long)]
    key: PathBuf,
    /// The image of the sidecar.
    #[arg(long, default_value = "registry.k8s.io/pause:3.10")]
    image: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let options = Options::parse();
    let image = options.image.clone();
    let handler = move |Json(review): Json<Value>| async move { Json(inject::answer(&review, &image)) };
    let router = Router::new().route("/mutate", post(handler));
    serve::serve(&options.listen, &options.cert, &options.key, router).await
}
