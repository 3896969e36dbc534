//! The protobuf wire format: numbered fields, each a number or a run of bytes. Nothing here knows what they mean.

use super::Unreadable;

/// The content of one field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Payload<'a> {
    Number(i64),
    Bytes(&'a [u8]),
}

/// The fields of one message in the order in which they were written.
pub struct Reader<'a> {
    rest: &'a [u8],
    failed: bool,
}

impl<'a> Reader<'a> {
    pub fn new(message: &'a [u8]) -> Self {
        Self {
            rest: message,
            failed: false,
        }
    }

    fn field(&mut self) -> Option<(u64, Payload<'a>)> {
        let key = self.number()?;
        let payload = match key & 7 {
            // Negative numbers are written as their 64-bit two's complement.
            0 => Payload::Number(self.number()?.cast_signed()),
            1 => Payload::Bytes(self.take(8)?),
            2 => {
                let length = usize::try_from(self.number()?).ok()?;
                Payload::Bytes(self.take(length)?)
            }
            5 => Payload::Bytes(self.take(4)?),
            // Groups are long gone, and 6 and 7 never were.
            _ => return None,
        };
        Some((key >> 3, payload))
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for position in 0..10 {
            let byte = *self.take(1)?.first()?;
            number |= u64::from(byte & 0x7f).checked_shl(7 * position)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(taken)
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<(u64, Payload<'a>), Unreadable>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() || self.failed {
            return None;
        }
        let field = self.field();
        self.failed = field.is_none();
        Some(field.ok_or(Unreadable::Malformed))
    }
}
