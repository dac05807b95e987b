//! Where the bytes of a segment are: in a file, or in memory where there is no data directory. Written at the end only, read anywhere.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use parking_lot::RwLock;

/// The bytes of one segment.
#[derive(Debug)]
pub enum Medium {
    /// A file.
    File(File),
    /// Memory.
    Memory(RwLock<Vec<u8>>),
}

impl Medium {
    /// A new file, which only the server's own user may read: events tell who did what.
    pub fn create(path: &Path) -> io::Result<Medium> {
        let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        Ok(Medium::File(file))
    }

    /// A file that is there.
    pub fn open(path: &Path) -> io::Result<Medium> {
        File::options().read(true).write(true).open(path).map(Medium::File)
    }

    /// Memory.
    pub fn memory() -> Medium {
        Medium::Memory(RwLock::default())
    }

    /// How many bytes there are.
    pub fn length(&self) -> io::Result<u64> {
        match self {
            Medium::File(file) => Ok(file.metadata()?.len()),
            Medium::Memory(bytes) => Ok(bytes.read().len() as u64),
        }
    }

    /// Writes at a place; whoever writes knows where the end is, so that half a write that failed is written over by the next.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        match self {
            Medium::File(file) => file.write_all_at(bytes, offset),
            Medium::Memory(held) => {
                let mut held = held.write();
                held.truncate(offset as usize);
                held.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Says that nothing more will be written: memory that was kept ready is given back.
    pub fn settle(&self) {
        if let Medium::Memory(bytes) = self {
            bytes.write().shrink_to_fit();
        }
    }

    /// Cuts what is behind a place.
    pub fn cut(&self, length: u64) -> io::Result<()> {
        match self {
            Medium::File(file) => file.set_len(length),
            Medium::Memory(bytes) => {
                bytes.write().truncate(length as usize);
                Ok(())
            }
        }
    }

    /// Reads from a place.
    pub fn read(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        match self {
            Medium::File(file) => {
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, offset)?;
                Ok(bytes)
            }
            Medium::Memory(held) => {
                let held = held.read();
                let from = usize::try_from(offset).map_err(|_| io::ErrorKind::UnexpectedEof)?;
                let bytes = from.checked_add(length).and_then(|to| held.get(from..to));
                bytes.map(<[u8]>::to_vec).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
            }
        }
    }
}
