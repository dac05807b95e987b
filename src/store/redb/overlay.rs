//! A file that can be looked at as a database without being changed: what redb writes, for instance while it repairs
//! what a crash left behind, stays in memory. For checking and dumping; never for serving.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Mutex;

use redb::StorageBackend;

use super::medium::Failure;

const BLOCK: u64 = 4096;

/// Reads from the file, writes to memory.
#[derive(Debug)]
pub(super) struct Overlay {
    file: File,
    changed: Mutex<Changed>,
}

#[derive(Debug)]
struct Changed {
    length: u64,
    /// Only this much of the file is still in sight: it may have been cut and grown again.
    visible: u64,
    blocks: HashMap<u64, Box<[u8]>>,
}

impl Overlay {
    /// Opens the file, unless a server has it.
    pub(super) fn open(path: &Path) -> Result<Overlay, Failure> {
        let io = |error: io::Error| Failure::from(redb::StorageError::from(error));
        let file = File::open(path).map_err(io)?;
        // The lock that redb takes. It is shared: any number may look, none may write meanwhile.
        match file.try_lock_shared() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => return Err(redb::DatabaseError::DatabaseAlreadyOpen.into()),
            Err(std::fs::TryLockError::Error(error)) => return Err(io(error)),
        }
        let length = file.metadata().map_err(io)?.len();
        if length == 0 {
            return Err(Failure::Damage("it is empty".to_owned()));
        }
        Ok(Overlay { file, changed: Mutex::new(Changed { length, visible: length, blocks: HashMap::new() }) })
    }

    fn changed(&self) -> std::sync::MutexGuard<'_, Changed> {
        self.changed.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// One block as it is now.
    fn block(&self, changed: &Changed, number: u64) -> io::Result<Box<[u8]>> {
        if let Some(block) = changed.blocks.get(&number) {
            return Ok(block.clone());
        }
        let mut block = vec![0; BLOCK as usize].into_boxed_slice();
        let start = number * BLOCK;
        let end = (start + BLOCK).min(changed.visible);
        if start < end {
            read_at(&self.file, start, &mut block[..(end - start) as usize])?;
        }
        Ok(block)
    }
}

#[cfg(unix)]
fn read_at(file: &File, offset: u64, out: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
}

#[cfg(not(unix))]
fn read_at(mut file: &File, offset: u64, out: &mut [u8]) -> io::Result<()> {
    use std::io::{Read, Seek};
    file.seek(io::SeekFrom::Start(offset))?;
    file.read_exact(out)
}

/// The blocks that a span of bytes touches: the number, where in the block, and where in the span.
fn pieces(offset: u64, length: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done >= length {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % BLOCK) as usize;
        let take = (BLOCK as usize - within).min(length - done);
        let piece = (at / BLOCK, within..within + take, done..done + take);
        done += take;
        Some(piece)
    })
}

impl StorageBackend for Overlay {
    fn len(&self) -> io::Result<u64> {
        Ok(self.changed().length)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let changed = self.changed();
        if offset.checked_add(out.len() as u64).is_none_or(|end| end > changed.length) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if changed.blocks.is_empty() && offset + out.len() as u64 <= changed.visible {
            return read_at(&self.file, offset, out);
        }
        for (number, within, span) in pieces(offset, out.len()) {
            out[span].copy_from_slice(&self.block(&changed, number)?[within]);
        }
        Ok(())
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let mut changed = self.changed();
        if length < changed.length {
            changed.visible = changed.visible.min(length);
            changed.blocks.retain(|number, _| number * BLOCK < length);
            let (last, within) = (length / BLOCK, (length % BLOCK) as usize);
            if let Some(block) = changed.blocks.get_mut(&last) {
                block[within..].fill(0);
            }
        }
        changed.length = length;
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut changed = self.changed();
        for (number, within, span) in pieces(offset, data.len()) {
            let mut block = self.block(&changed, number)?;
            block[within].copy_from_slice(&data[span]);
            changed.blocks.insert(number, block);
        }
        changed.length = changed.length.max(offset + data.len() as u64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_to_an_overlay_is_read_back_and_the_file_stays_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let original: Vec<u8> = (0..10_000u32).map(|at| at as u8).collect();
        std::fs::write(&path, &original).unwrap();
        let overlay = Overlay::open(&path).unwrap();
        overlay.write(4000, &[7; 5000]).unwrap();
        overlay.set_len(8500).unwrap();
        overlay.set_len(20_000).unwrap();
        let mut expected = original.clone();
        expected[4000..9000].fill(7);
        expected.truncate(8500);
        expected.resize(20_000, 0);
        let mut found = vec![1; 20_000];
        overlay.read(0, &mut found).unwrap();
        assert!(found == expected);
        assert!(overlay.read(19_999, &mut [0; 2]).is_err());
        assert!(std::fs::read(&path).unwrap() == original);
    }
}
