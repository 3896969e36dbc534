//! A Kubernetes API server in memory: storage with one global revision, watches, the patch forms, server-side apply,
//! finalizers, eviction, custom resources. The rules live in [`ApiServer`], which does no I/O; `service` puts it under
//! a `kube::Client`, `https` serves it to real clients, and the simulator calls it directly. What a schema says
//! about an object lives in `afloat-apischema`; actors that *use* the API (kubelets, schedulers) live in `afloat-sim`.

pub mod discovery;
pub mod openapi;
pub mod printing;
pub mod registry;
pub mod resource;
