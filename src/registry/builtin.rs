//! The built-in resources as data.
