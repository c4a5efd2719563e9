//! Who a client is, and what has to be looked at before its requests are run because of that. Relies on `user`.

use std::sync::Arc;

use super::user::User;

/// What has to be looked at before a request of a client is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Whether it is one of the few that clients may send before they give a password.
    Stranger,
    /// Whether the user's rules allow it.
    Restricted,
    /// Nothing: the user may do everything.
    Unrestricted,
}

/// Who a client is.
#[derive(Clone, Debug)]
pub struct Login {
    user: Arc<User>,
    /// It has given a password, or needed none when it came.
    is_authenticated: bool,
    /// Follows from the two, and from whether the default user needs a password.
    access: Access,
}

impl Default for Login {
    /// A stranger.
    fn default() -> Self {
        Self::new(Arc::clone(&super::UNRESTRICTED), false, Access::Stranger)
    }
}

impl Login {
    pub(super) fn new(user: Arc<User>, is_authenticated: bool, access: Access) -> Self {
        Self { user, is_authenticated, access }
    }

    /// One that may do everything: the server itself, which reads the log back.
    pub fn unrestricted() -> Self {
        Self::new(Arc::clone(&super::UNRESTRICTED), true, Access::Unrestricted)
    }

    /// The user; that of a stranger is the default one.
    pub fn user(&self) -> &User {
        &self.user
    }

    /// Whether the client has given a password, or needed none when it came.
    pub fn is_authenticated(&self) -> bool {
        self.is_authenticated
    }

    /// Whether the client has to give a password first.
    #[inline]
    pub fn is_stranger(&self) -> bool {
        self.access == Access::Stranger
    }

    /// Whether the client's requests need no look at its user.
    #[inline]
    pub fn is_unrestricted(&self) -> bool {
        self.access == Access::Unrestricted
    }
}
