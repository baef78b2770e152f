package verify

// Reason says why a call was refused. It is a word from this list and never
// holds anything of the call or the secret.
type Reason string

// Error makes a Reason an error, so that checks return early.
func (r Reason) Error() string { return string(r) }

// Every Reason there is.
const (
	ReasonNoSecret            Reason = "no_secret"             // nothing to verify with: refused, not waved through
	ReasonBadSecret           Reason = "bad_secret"            // no configured secret is a key of this scheme
	ReasonNotConfigured       Reason = "not_configured"        // a value that the scheme needs is not set
	ReasonSignatureMissing    Reason = "signature_missing"     // no signature, or an empty one
	ReasonSignatureMalformed  Reason = "signature_malformed"   // not in the form of the scheme
	ReasonSignatureAmbiguous  Reason = "signature_ambiguous"   // there twice
	ReasonSignatureMismatch   Reason = "signature_mismatch"    // does not belong to these bytes and this secret
	ReasonFieldMissing        Reason = "field_missing"         // something that is signed is not there
	ReasonFieldAmbiguous      Reason = "field_ambiguous"       // something that is signed is there twice
	ReasonBodyMalformed       Reason = "body_malformed"        // the body is not what the scheme reads
	ReasonBodyNotCovered      Reason = "body_not_covered"      // the signature leaves the body out
	ReasonTimestampMissing    Reason = "timestamp_missing"     //
	ReasonTimestampMalformed  Reason = "timestamp_malformed"   //
	ReasonTimestampOutside    Reason = "timestamp_outside"     // rightly signed, but too old or too far ahead
	ReasonKeyURLRefused       Reason = "key_url_refused"       // the certificate's URL is not one of the vendor's
	ReasonCertificateRefused  Reason = "certificate_refused"   // what the URL gave is no valid certificate
	ReasonTokenMalformed      Reason = "token_malformed"       // no JWT of three parts
	ReasonTokenAlgorithm      Reason = "token_algorithm"       // an algorithm that no configured key has
	ReasonTokenExpired        Reason = "token_expired"         //
	ReasonTokenNotYet         Reason = "token_not_yet_valid"   //
	ReasonTokenClaims         Reason = "token_claims"          // audience, issuer or email is another
	ReasonUnknownSource       Reason = "unknown_source"        // signed by the vendor, but for a topic that is not configured
	ReasonSignatureVersionBad Reason = "signature_version_bad" // a signature version that is not known
)
