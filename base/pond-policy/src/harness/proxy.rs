//! The environment of a network that is only a proxy: every spelling that some tool insists on. A tool that reads none of
//! them still works where the gateway answers its name look-ups.

/// Variables with the proxy's URL as their value. Upper and lower case: wget and apt read only the one, others the other.
const URLS: [&str; 13] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
    "GRPC_PROXY",
    "grpc_proxy",
    "YARN_HTTP_PROXY",
    "YARN_HTTPS_PROXY",
    "npm_config_proxy",
    "npm_config_https_proxy",
    "CARGO_HTTP_PROXY",
];
/// Variables that say what goes past the proxy: the broker, on loopback.
const EXCEPTIONS: [&str; 3] = ["NO_PROXY", "no_proxy", "npm_config_noproxy"];
const LOOPBACK: &str = "localhost,127.0.0.1,::1";
const JAVA_LOOPBACK: &str = "localhost|127.*|[::1]";

/// The variables that lead tools to a proxy at `host:port`.
pub fn proxy_environment(host: &str, port: u16) -> Vec<(String, String)> {
    let url = format!("http://{host}:{port}");
    let java = format!(
        "-Dhttp.proxyHost={host} -Dhttp.proxyPort={port} -Dhttps.proxyHost={host} -Dhttps.proxyPort={port} \
         -Dhttp.nonProxyHosts={JAVA_LOOPBACK}"
    );
    let others = [
        ("NODE_USE_ENV_PROXY", "1".to_owned()),
        ("ELECTRON_GET_USE_PROXY", "1".to_owned()),
        ("CLOUDSDK_PROXY_TYPE", "http".to_owned()),
        ("CLOUDSDK_PROXY_ADDRESS", host.to_owned()),
        ("CLOUDSDK_PROXY_PORT", port.to_string()),
        ("JAVA_TOOL_OPTIONS", java),
        // Git over ssh has no way out; its https has.
        ("GIT_CONFIG_COUNT", "2".to_owned()),
        ("GIT_CONFIG_KEY_0", "url.https://github.com/.insteadOf".to_owned()),
        ("GIT_CONFIG_VALUE_0", "git@github.com:".to_owned()),
        ("GIT_CONFIG_KEY_1", "url.https://github.com/.insteadOf".to_owned()),
        ("GIT_CONFIG_VALUE_1", "ssh://git@github.com/".to_owned()),
        // Only the module mirror is a listed host; a fallback to version control would be refused anyway.
        ("GOPROXY", "https://proxy.golang.org".to_owned()),
    ];
    let urls = URLS.iter().map(|name| ((*name).to_owned(), url.clone()));
    let exceptions = EXCEPTIONS.iter().map(|name| ((*name).to_owned(), LOOPBACK.to_owned()));
    let others = others.into_iter().map(|(name, value)| (name.to_owned(), value));
    urls.chain(exceptions).chain(others).collect()
}
