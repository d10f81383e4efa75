//! The operations that both clients have, written once.

/// Defines the operations on `call`, which sends a request to the server of its key. `async` and `.await`
/// are given for the asynchronous client.
macro_rules! operations {
    ([$($async:tt)?] [$($await:tt)*]) => {
        /// The value and the client flags of an item; `None` is a miss.
        ///
        /// # Errors
        /// See [`Error`](crate::Error).
        pub $($async)? fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
            self.call(Request::get(key.as_ref())) $($await)*
        }

        /// As `get`, with the item's CAS, for [`cas`](Self::cas).
        ///
        /// # Errors
        /// See [`Error`](crate::Error).
        pub $($async)? fn gets(&self, key: impl AsRef<[u8]>) -> Result<Option<Value>, Error> {
            self.call(Request::gets(key.as_ref())) $($await)*
        }

        /// As `gets`, and changes when the item expires.
        ///
        /// # Errors
        /// See [`Error`](crate::Error).
        pub $($async)? fn get_and_touch(
            &self,
            key: impl AsRef<[u8]>,
            expiry: impl Into<Expiry>,
        ) -> Result<Option<Value>, Error> {
            self.call(Request::get_and_touch(key.as_ref(), expiry.into())) $($await)*
        }

        /// Stores a value, without client flags; see [`store`](Self::store).
        ///
        /// # Errors
        /// See [`Error`](crate::Error). A value that is too large for the server is
        /// [`Error::Refused`](crate::Error::Refused).
        pub $($async)? fn set(
            &self,
            key: impl AsRef<[u8]>,
            value: impl AsRef<[u8]>,
            expiry: impl Into<Expiry>,
        ) -> Result<(), Error> {
            let (key, value, expiry) = (key.as_ref(), value.as_ref(), expiry.into());
            self.call(Request::store(StoreMode::Set, key, value, 0, expiry)) $($await)*
        }

        /// Stores a value if there is no such item; says whether it did.
        ///
        /// # Errors
        /// See [`Error`](crate::Error).
        pub $($async)? fn add(
            &self,
            key: impl AsRef<[u8]>,
            value: impl AsRef<[u8]>,
            expiry: impl Into<Expiry>,
        ) -> Result<bool, Error> {
            let (key, value, expiry) = (key.as_ref(), value.as_ref(), expiry.into());
            self.call(Request::store(StoreMode::Add, key, value, 0, expiry)) $($await)*
        }

        /// Stores a value if there is an item already; says whether it did.
        ///
        /// # Errors
        /// See [`Error`](crate::Error).
        pub $($async)? fn replace(
            &self,
            key: impl AsRef<[u8]>,
            value: impl AsRef<[u8]>,
            expiry: impl Into<Expiry>,
        ) -> Result<bool, Error> {
            let (key, value, expiry) = (key.as_ref(), value.as_ref(), expiry.into());
            self.call(Request::store(StoreMode::Replace, key, value, 0, expiry)) $($await)*
        }

        /// Puts bytes behind an item's value; says whether there was one.
        ///
        /// # Errors
        /// See [`Error`](crate::Error).
        pub $($async)? fn append(
            &self,
            key: impl AsRef<[u8]>,
            value: impl AsRef<[u8]>,
        ) -> Result<bool, Error> {
            let (key, value) = (key.as_ref(), value.as_ref());
            self.call(Request::store(StoreMode::Append, key, value, 0, Expiry::NEVER)) $($await)*
        }

        /// Puts bytes in front of an item's value; says whether there was one.
        ///
        /// # Errors
        /// See [`Error`](crate::Error).
        pub $($async)? fn prepend(
            &self,
            key: impl AsRef<[u8]>,
            value: impl AsRef<[u8]>,
        ) -> Result<bool, Error> {
            let (key, value) = (key.as_ref(), value.as_ref());
            self.call(Request::store(StoreMode::Prepend, key, value, 0, Expiry::NEVER)) $($await)*
        }

        /// Stores a value if the item still has the CAS that [`gets`](Self::gets) told.
        ///
        /// # Errors
        /// See [`Error`](crate::Error).
        pub $($async)? fn cas(
            &self,
            key: impl AsRef<[u8]>,
            value: impl AsRef<[u8]>,
            expiry: impl Into<Expiry>,
            cas: u64,
        ) -> Result<StoreOutcome, Error> {
            self.store(StoreMode::Cas(cas), key, value, 0, expiry) $($await)*
        }

        /// Stores a value in any mode, with client flags: 32 bits that come back with the value.
        ///
        /// # Errors
        /// See [`Error`](crate::Error).
        pub $($async)? fn store(
            &self,
            mode: StoreMode,
            key: impl AsRef<[u8]>,
            value: impl AsRef<[u8]>,
            client_flags: u32,
            expiry: impl Into<Expiry>,
        ) -> Result<StoreOutcome, Error> {
            let (key, value, expiry) = (key.as_ref(), value.as_ref(), expiry.into());
            self.call(Request::store(mode, key, value, client_flags, expiry)) $($await)*
        }

        /// Deletes an item; says whether there was one.
        ///
        /// # Errors
        /// See [`Error`](crate::Error).
        pub $($async)? fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
            self.call(Request::delete(key.as_ref())) $($await)*
        }

        /// Changes when an item expires; says whether there is one.
        ///
        /// # Errors
        /// See [`Error`](crate::Error).
        pub $($async)? fn touch(
            &self,
            key: impl AsRef<[u8]>,
            expiry: impl Into<Expiry>,
        ) -> Result<bool, Error> {
            self.call(Request::touch(key.as_ref(), expiry.into())) $($await)*
        }

        /// Adds to a decimal number, which wraps at 64 bits, and gives the new one; `None` without an item.
        ///
        /// # Errors
        /// See [`Error`](crate::Error). A value that is no number is
        /// [`Error::Refused`](crate::Error::Refused).
        pub $($async)? fn increment(
            &self,
            key: impl AsRef<[u8]>,
            delta: u64,
        ) -> Result<Option<u64>, Error> {
            self.call(Request::increment(key.as_ref(), delta, None)) $($await)*
        }

        /// Subtracts from a decimal number, which stops at 0, and gives the new one; `None` without an item.
        ///
        /// # Errors
        /// As [`increment`](Self::increment).
        pub $($async)? fn decrement(
            &self,
            key: impl AsRef<[u8]>,
            delta: u64,
        ) -> Result<Option<u64>, Error> {
            self.call(Request::decrement(key.as_ref(), delta, None)) $($await)*
        }

        /// Any meta command with any flags. A miss is [`Status::Missing`](crate::wire::Status::Missing).
        ///
        /// # Errors
        /// See [`Error`](crate::Error). A server without the meta commands is
        /// [`RequestError::NeedsMeta`](crate::RequestError::NeedsMeta).
        pub $($async)? fn meta(
            &self,
            key: impl AsRef<[u8]>,
            meta: Meta<'_>,
        ) -> Result<ItemReply, Error> {
            self.call(Request::meta(key.as_ref(), meta)) $($await)*
        }

        /// The values of many items, in the order of `keys`; `None` is a miss. Each server gets its keys in
        /// one write, all servers at once.
        ///
        /// # Errors
        /// The first error of any key; see [`get_many_each`](Self::get_many_each).
        pub $($async)? fn get_many<K: AsRef<[u8]>>(
            &self,
            keys: &[K],
        ) -> Result<Vec<Option<Value>>, Error> {
            self.get_many_each(keys) $($await)* .into_iter().collect()
        }
    };
}

pub(crate) use operations;
