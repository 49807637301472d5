//! A minimal HTTP/1.1 client over one persistent connection: as little work as possible on this side, so that the server
//! is what is measured.

use std::io;

use memchr::memmem;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub struct Connection {
    address: String,
    stream: TcpStream,
    /// The server has said that it closes after its last answer: some close after every one.
    is_closing: bool,
    /// What was read and not used yet.
    buffer: Vec<u8>,
}

pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        headers(&self.head).find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

impl Connection {
    pub async fn open(address: &str) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let buffer = Vec::with_capacity(64 << 10);
        Ok(Self { address: address.to_owned(), stream, is_closing: false, buffer })
    }

    pub async fn exchange(&mut self, request: &[u8]) -> io::Result<Answer> {
        if self.is_closing {
            *self = Self::open(&self.address).await?;
        }
        self.stream.write_all(request).await?;
        let end = loop {
            if let Some(at) = memmem::find(&self.buffer, b"\r\n\r\n") {
                break at;
            }
            self.fill().await?;
        };
        let head = String::from_utf8(self.buffer[..end].to_vec());
        let head = head.map_err(|_| broken("the answer's head is no text"))?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        let status = status.ok_or_else(|| broken("the answer has no status"))?;
        let (mut length, mut is_chunked) = (0, false);
        self.is_closing = false;
        for (name, value) in headers(&head) {
            if name.eq_ignore_ascii_case("content-length") {
                length = value.parse().unwrap_or(0);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                is_chunked = value.eq_ignore_ascii_case("chunked");
            } else if name.eq_ignore_ascii_case("connection") {
                self.is_closing = value.eq_ignore_ascii_case("close");
            }
        }
        let body = if is_chunked {
            self.buffer.drain(..end + 4);
            self.chunks().await?
        } else {
            self.take(end + 4, length).await?
        };
        Ok(Answer { status, head, body })
    }

    async fn fill(&mut self) -> io::Result<()> {
        if self.stream.read_buf(&mut self.buffer).await? == 0 {
            return Err(broken("the connection was closed"));
        }
        Ok(())
    }

    /// Takes what comes after so many bytes, which are dropped.
    async fn take(&mut self, dropped: usize, length: usize) -> io::Result<Vec<u8>> {
        let end = dropped + length;
        while self.buffer.len() < end {
            self.fill().await?;
        }
        let taken = self.buffer[dropped..end].to_vec();
        self.buffer.drain(..end);
        Ok(taken)
    }

    async fn chunks(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let end = loop {
                if let Some(at) = memmem::find(&self.buffer, b"\r\n") {
                    break at;
                }
                self.fill().await?;
            };
            let line = String::from_utf8_lossy(&self.buffer[..end]).into_owned();
            self.buffer.drain(..end + 2);
            let length = line.split(';').next().unwrap_or_default().trim();
            let length = usize::from_str_radix(length, 16).map_err(|_| broken("a chunk has no length"))?;
            body.extend(self.take(0, length).await?);
            self.take(2, 0).await?;
            if length == 0 {
                return Ok(body);
            }
        }
    }
}

/// The names and values of a head's lines, without its first one.
fn headers(head: &str) -> impl Iterator<Item = (&str, &str)> {
    head.lines().skip(1).filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        Some((name, value.trim()))
    })
}

fn broken(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.to_owned())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Answers in pieces as a network may bring them, with a length and in chunks, and a connection that is closed.
    #[tokio::test]
    async fn answers_come_in_any_form() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let answers: [&[&str]; 3] = [
                &["HTTP/1.1 200 OK\r\nContent-Le", "ngth: 5\r\n\r", "\nhel", "lo"],
                &[
                    "HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n3\r\nabc\r",
                    "\n2;x=y\r\nde\r\n0\r\n\r\n",
                ],
                &["HTTP/1.1 304 Not Modified\r\netag: 7\r\n\r\n"],
            ];
            let mut buffer = [0; 1024];
            let (mut stream, _) = listener.accept().await.unwrap();
            for (at, answer) in answers.into_iter().enumerate() {
                if at == 2 {
                    stream = listener.accept().await.unwrap().0;
                }
                assert!(stream.read(&mut buffer).await.unwrap() > 0);
                for piece in answer {
                    stream.write_all(piece.as_bytes()).await.unwrap();
                    tokio::task::yield_now().await;
                }
            }
        });
        let mut connection = Connection::open(&address).await.unwrap();
        let first = connection.exchange(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        assert_eq!((first.status, first.body.as_slice()), (200, &b"hello"[..]));
        let second = connection.exchange(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        assert_eq!((second.status, second.body.as_slice()), (201, &b"abcde"[..]));
        let third = connection.exchange(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
        assert_eq!((third.status, third.header("ETag")), (304, Some("7")));
    }
}
