//! Kubernetes' expression language.
