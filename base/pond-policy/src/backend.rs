//! What stands between a job and the kernel, and how strong it is.
//!
//! Backends have no order of their own: `native` and `docker` are different and equally strong, so only their strength
//! is compared.

named_enum! {
    pub enum Backend {
        /// pond's own launcher: namespaces, Landlock, seccomp.
        Native => "native",
        /// A container on the host's kernel.
        Docker => "docker",
        /// A container on a kernel in user space.
        Gvisor => "gvisor",
        /// A container in its own small virtual machine.
        Firecracker => "firecracker",
    }
}

named_enum! {
    /// The boundary, weakest first.
    #[derive(PartialOrd, Ord)]
    pub enum Strength {
        SharedKernel => "shared-kernel",
        UserKernel => "user-kernel",
        VirtualMachine => "virtual-machine",
    }
}

impl Backend {
    pub const fn strength(self) -> Strength {
        match self {
            Self::Native | Self::Docker => Strength::SharedKernel,
            Self::Gvisor => Strength::UserKernel,
            Self::Firecracker => Strength::VirtualMachine,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strength_orders_backends() {
        let [native, docker, gvisor, firecracker] =
            [Backend::Native, Backend::Docker, Backend::Gvisor, Backend::Firecracker].map(Backend::strength);
        assert_eq!(native, docker);
        assert!(docker < gvisor && gvisor < firecracker);
    }
}
