//! The configuration of TLS. There are no settings: both sides are this library.

use std::{io, sync::Arc};

use rustls::{
    ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls13_signature_with_raw_key},
    pki_types::{
        CertificateDer, PrivatePkcs8KeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
    },
    server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage},
    sign::CertifiedKey,
    version::TLS13,
};
use zeroize::Zeroizing;

/// The configurations of this process's channels.
#[derive(Debug)]
pub(super) struct Identity {
    pub client: Arc<ClientConfig>,
    pub server: Arc<ServerConfig>,
}

/// A private key of Ed25519 is this and 32 random bytes (RFC 8410, section 10.3).
const PKCS8_ED25519: [u8; 16] =
    *b"\x30\x2e\x02\x01\x00\x30\x05\x06\x03\x2b\x65\x70\x04\x22\x04\x20";

impl Identity {
    /// An identity with a fresh key. Some 50 µs.
    ///
    /// # Errors
    /// The kernel has no random bytes.
    pub(super) fn draw() -> io::Result<Identity> {
        let provider = Arc::new(provider());
        let failed = |error: Error| io::Error::other(error);
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(failed)?;
        let algorithms = provider.signature_verification_algorithms;
        let mut client = client
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyRawKey(algorithms)))
            .with_no_client_auth();
        client.enable_sni = false;
        client.resumption = Resumption::disabled();
        let mut pkcs8 = Zeroizing::new([0; PKCS8_ED25519.len() + 32]);
        pkcs8[..PKCS8_ED25519.len()].copy_from_slice(&PKCS8_ED25519);
        getrandom::fill(&mut pkcs8[PKCS8_ED25519.len()..])
            .map_err(|error| io::Error::other(error.to_string()))?;
        let key = ring::sign::any_eddsa_type(&PrivatePkcs8KeyDer::from(&pkcs8[..]));
        let key = key.map_err(failed)?;
        let public = key.public_key().ok_or_else(|| failed(Error::General("no key".into())))?;
        let public = vec![CertificateDer::from(public.to_vec())];
        let resolver =
            AlwaysResolvesServerRawPublicKeys::new(Arc::new(CertifiedKey::new(public, key)));
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(failed)?;
        let mut server = server.with_no_client_auth().with_cert_resolver(Arc::new(resolver));
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Ok(Identity { client: Arc::new(client), server: Arc::new(server) })
    }
}

/// The algorithms: all those of TLS 1.3, the fastest that this processor has instructions for
/// first; one way to agree on keys.
fn provider() -> CryptoProvider {
    use ring::cipher_suite::{
        TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
    };
    let mut suites = vec![TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384];
    let at = if has_aes() { suites.len() } else { 0 };
    suites.insert(at, TLS13_CHACHA20_POLY1305_SHA256);
    CryptoProvider {
        cipher_suites: suites,
        kx_groups: vec![ring::kx_group::X25519],
        ..ring::default_provider()
    }
}

fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("aes") && std::is_x86_feature_detected!("pclmulqdq");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Takes any raw public key whose owner has signed the handshake: the channel binding shows which
/// peer that is.
#[derive(Debug)]
struct AnyRawKey(rustls::crypto::WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyRawKey {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken here".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
