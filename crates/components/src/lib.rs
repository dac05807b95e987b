//! Controllers, scheduler and kubelet.
