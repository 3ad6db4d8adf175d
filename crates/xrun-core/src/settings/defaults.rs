//! `settings!`: a table of the experiment file, each key with its default.

/// `settings! { pub struct Limits { pub threads: usize = 0, … } }`: the struct, which refuses unknown keys, and its defaults.
#[macro_export]
macro_rules! settings {
    ($($(#[$about:meta])* pub struct $name:ident { $($(#[$of:meta])* pub $key:ident: $type:ty = $default:expr,)* })+) => {$(
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
        #[serde(deny_unknown_fields, default)]
        $(#[$about])*
        pub struct $name {
            $($(#[$of])* pub $key: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }
    )+};
}
