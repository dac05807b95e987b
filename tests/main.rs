//! The one integration-test binary: a module per room.

mod store;
