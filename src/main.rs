//! The binary.

use std::net::SocketAddr;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let address: SocketAddr = "127.0.0.1:6443".parse().unwrap();
    let server = usher::Server::builder().data_dir(std::env::args().nth(1).unwrap()).listen(address).start().await.unwrap();
    println!("ready {:?}", server.address());
    tokio::signal::ctrl_c().await.unwrap();
    server.stop().await;
}
