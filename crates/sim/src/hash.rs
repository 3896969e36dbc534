//! Hashes that end up in names and labels. They must be the same in every run, so the standard library's are out.

/// FNV-1a, 64 bits.
pub fn fnv64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The letters Kubernetes makes generated names of: no vowels, nothing that looks like something else.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

fn letters(mut number: u64, length: usize) -> String {
    let mut text = String::with_capacity(length);
    for _ in 0..length {
        let index = usize::try_from(number % LETTERS.len() as u64).unwrap_or(0);
        text.push(char::from(LETTERS.get(index).copied().unwrap_or(b'x')));
        number /= LETTERS.len() as u64;
    }
    text
}

/// The hash of a pod template, in the form of a `pod-template-hash`.
pub fn template_hash(template: &impl serde::Serialize) -> String {
    letters(fnv64(&serde_json::to_vec(template).unwrap_or_default()), 9)
}

/// Five letters for a generated name.
pub fn suffix(rng: &mut fastrand::Rng) -> String {
    letters(rng.u64(..), 5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv_matches_its_published_values() {
        assert_eq!(fnv64(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv64(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv64(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn names_use_kubernetes_letters_and_follow_the_seed() {
        let first = suffix(&mut fastrand::Rng::with_seed(7));
        assert_eq!(first, suffix(&mut fastrand::Rng::with_seed(7)));
        assert!(first.len() == 5 && first.bytes().all(|letter| LETTERS.contains(&letter)));
        assert_ne!(template_hash(&"a"), template_hash(&"b"));
    }
}
