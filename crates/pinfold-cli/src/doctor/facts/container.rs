//! The container that this process runs in, if any.

use super::Root;

/// A kind of container, named after the software that made it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Container {
    /// None that can be seen.
    #[default]
    None,
    /// Docker, or a container that calls itself so.
    Docker,
    /// Podman.
    Podman,
    /// A pod of Kubernetes.
    Kubernetes,
    /// systemd-nspawn.
    Nspawn,
    /// LXC or Incus.
    Lxc,
    /// Some other one.
    Other,
}

impl Container {
    /// The name that reports use.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Container::None => "none",
            Container::Docker => "docker",
            Container::Podman => "podman",
            Container::Kubernetes => "kubernetes",
            Container::Nspawn => "systemd-nspawn",
            Container::Lxc => "lxc",
            Container::Other => "other",
        }
    }
}

/// Finds the container by the marks that container managers leave.
pub(super) fn container(root: Root<'_>) -> Container {
    // The manager names itself to the first process; others may not be allowed to read that.
    let environment = root.text("/proc/1/environ").unwrap_or_default();
    let told = environment.split('\0').find_map(|pair| pair.strip_prefix("container="));
    let marked = root.text("/run/systemd/container");
    let name = told.map(str::to_owned).or(marked).unwrap_or_default();
    if root.has("/var/run/secrets/kubernetes.io") {
        return Container::Kubernetes;
    }
    match name.as_str() {
        "docker" => Container::Docker,
        "podman" => Container::Podman,
        "systemd-nspawn" => Container::Nspawn,
        "lxc" | "lxc-libvirt" => Container::Lxc,
        _ if root.has("/run/.containerenv") => Container::Podman,
        _ if root.has("/.dockerenv") => Container::Docker,
        "" => Container::None,
        _ => Container::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::tests::model, *};

    #[test]
    fn marks_are_known() {
        let found = |files: &[(&str, &str)]| container(Root(model(files).path()));
        assert_eq!(found(&[]), Container::None);
        assert_eq!(found(&[("/.dockerenv", "")]), Container::Docker);
        assert_eq!(found(&[("/run/.containerenv", "")]), Container::Podman);
        assert_eq!(found(&[("/run/systemd/container", "systemd-nspawn\n")]), Container::Nspawn);
        assert_eq!(found(&[("/proc/1/environ", "A=b\0container=lxc\0")]), Container::Lxc);
        assert_eq!(found(&[("/proc/1/environ", "container=wsl")]), Container::Other);
        let pod = [("/var/run/secrets/kubernetes.io/x", ""), ("/.dockerenv", "")];
        assert_eq!(found(&pod), Container::Kubernetes);
    }
}
