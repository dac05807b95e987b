//! Usher.
