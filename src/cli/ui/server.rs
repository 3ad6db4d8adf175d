//! HTTP server of `xrun ui`: GET on the loopback interface, below a secret path.
//!
//! `httparse` reads the head of a request; the rest of HTTP is one answer per connection. One thread reads the heads of all
//! connections, so that idle ones hold nothing up. Bounds: [`WAITING_MAX`] connections, [`HEAD_BYTES_MAX`] bytes and
//! [`READ_TIMEOUT`] for a request, as many requests in the queue of [`THREADS`], [`BODY_BYTES_MAX`] bytes and
//! [`WRITE_TIMEOUT`] for an answer.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// Number of threads that answer.
const THREADS: usize = 8;
/// Number of connections whose heads are read at a time; a further one closes the oldest.
const WAITING_MAX: usize = 64;
const HEAD_BYTES_MAX: usize = 8 * 1024;
const HEADERS_MAX: usize = 64;
const READ_TIMEOUT: Duration = Duration::from_secs(1);
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest answer.
pub const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Answer to a request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Media type.
    pub media_type: &'static str,
    /// Content security policy.
    pub policy: String,
    /// Content.
    pub body: Vec<u8>,
}

impl Answer {
    /// Page that may run the scripts that its policy names.
    pub fn page(text: String, policy: String) -> Self {
        Self { status: 200, media_type: "text/html; charset=utf-8", policy, body: text.into_bytes() }
    }

    /// JSON document.
    pub fn json(body: Vec<u8>) -> Self {
        Self { status: 200, media_type: "application/json", policy: NO_CONTENT.into(), body }
    }

    /// Line of text with a status.
    pub fn message(status: u16, text: &str) -> Self {
        let body = format!("{text}\n").into_bytes();
        Self { status, media_type: "text/plain; charset=utf-8", policy: NO_CONTENT.into(), body }
    }
}

/// Policy of an answer that is no page.
const NO_CONTENT: &str = "default-src 'none'; frame-ancestors 'none'";

/// Server on a port of the loopback interface.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    port: u16,
    token: String,
}

impl Server {
    /// Listens on a port, or on a free one for 0. Paths begin with a random token of 128 bits.
    pub fn bind(port: u16) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))?;
        let port = listener.local_addr()?.port();
        Ok(Self { listener, port, token: format!("{:032x}", rand::random::<u128>()) })
    }

    /// Address of the start page.
    pub fn address(&self) -> String {
        format!("http://127.0.0.1:{}/{}/", self.port, self.token)
    }

    /// Serves until the process ends. `answer` takes the path below the token.
    pub fn serve(&self, answer: &(dyn Fn(&str) -> Answer + Sync)) -> io::Result<()> {
        self.listener.set_nonblocking(true)?;
        let (send, receive) = mpsc::sync_channel::<Waiting>(WAITING_MAX);
        let receive = Mutex::new(receive);
        std::thread::scope(|scope| {
            for at in 0..THREADS {
                let receive = &receive;
                let next = move || receive.lock().unwrap_or_else(PoisonError::into_inner).recv();
                let work = move || {
                    while let Ok(request) = next() {
                        // A client that goes away is no error of the server.
                        drop(self.handle(request, answer));
                    }
                };
                std::thread::Builder::new().name(format!("ui-{at}")).spawn_scoped(scope, work)?;
            }
            let mut waiting = VecDeque::with_capacity(WAITING_MAX);
            loop {
                self.read_heads(&mut waiting, &send)?;
            }
        })
    }

    /// Waits for data, accepts a connection, and passes complete heads on. With a full queue a request is dropped.
    fn read_heads(&self, waiting: &mut VecDeque<Waiting>, send: &mpsc::SyncSender<Waiting>) -> io::Result<()> {
        wait_readable(&self.listener, waiting)?;
        match self.listener.accept() {
            Ok((connection, _)) => {
                if waiting.len() == WAITING_MAX {
                    waiting.pop_front();
                }
                connection.set_nonblocking(true)?;
                waiting.push_back(Waiting { connection, head: Vec::new(), since: Instant::now() });
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // Such as too many open files: a connection may end meanwhile.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
        for _ in 0..waiting.len() {
            let Some(mut one) = waiting.pop_front() else { break };
            match one.read() {
                Ok(true) => drop(send.try_send(one)),
                Ok(false) if one.since.elapsed() < READ_TIMEOUT => waiting.push_back(one),
                _ => {}
            }
        }
        Ok(())
    }

    fn handle(&self, request: Waiting, answer: &(dyn Fn(&str) -> Answer + Sync)) -> io::Result<()> {
        let Waiting { mut connection, head, .. } = request;
        connection.set_nonblocking(false)?;
        let answer = match head.len() > HEAD_BYTES_MAX {
            true => Answer::message(431, "the head of the request is too long"),
            false => self.respond(&head, answer),
        };
        let answer = match answer.body.len() > BODY_BYTES_MAX {
            true => Answer::message(507, "the answer is too large"),
            false => answer,
        };
        write_answer(&mut connection, &answer)
    }

    /// Answer to the head of a request.
    fn respond(&self, head: &[u8], answer: &(dyn Fn(&str) -> Answer + Sync)) -> Answer {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        let parsed = request.parse(head);
        let (Ok(httparse::Status::Complete(_)), Some(method), Some(path)) = (parsed, request.method, request.path)
        else {
            return Answer::message(400, "the request is not HTTP/1.1");
        };
        if method != "GET" {
            return Answer::message(405, "only GET is served");
        }
        // A page of another site reaches this address by a name of its own (DNS rebinding).
        let mut hosts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
        let known = [format!("127.0.0.1:{}", self.port), format!("localhost:{}", self.port)];
        let is_known = |header: &httparse::Header<'_>| known.iter().any(|host| host.as_bytes() == header.value);
        if !hosts.next().is_some_and(is_known) || hosts.next().is_some() {
            return Answer::message(421, "the host is not this server");
        }
        let path = path.split('?').next().unwrap_or_default();
        let below = path.strip_prefix('/').and_then(|path| path.split_once('/'));
        match below.filter(|(token, _)| is_equal(token.as_bytes(), self.token.as_bytes())) {
            Some((_, path)) => answer(path),
            None => Answer::message(404, "no such page; the address is printed at the start of `ui`"),
        }
    }
}

/// Compares in a time that does not depend on where the texts differ.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |different, (a, b)| different | (a ^ b)) == 0
}

/// Connection whose head is being read.
struct Waiting {
    connection: TcpStream,
    head: Vec<u8>,
    since: Instant,
}

impl Waiting {
    /// Reads what has arrived. Returns `true` if the head is complete, up to the empty line, or too long.
    fn read(&mut self) -> io::Result<bool> {
        let mut block = [0; 1024];
        loop {
            match self.connection.read(&mut block) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.head.extend_from_slice(&block[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
            if self.head.len() > HEAD_BYTES_MAX || self.head.windows(4).any(|end| end == b"\r\n\r\n") {
                return Ok(true);
            }
        }
    }
}

/// Waits for a connection or for data, at most until the oldest connection times out.
fn wait_readable(listener: &TcpListener, waiting: &VecDeque<Waiting>) -> io::Result<()> {
    let descriptors = waiting.iter().map(|one| one.connection.as_raw_fd()).chain([listener.as_raw_fd()]);
    let mut all: Vec<_> = descriptors.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    let left = waiting.front().map(|oldest| READ_TIMEOUT.saturating_sub(oldest.since.elapsed()));
    let milliseconds = left.map_or(-1, |left| i32::try_from(left.as_millis()).map_or(-1, |left| left + 1));
    // SAFETY: as many entries as are named, which outlive the call.
    match unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, milliseconds) } {
        count if count >= 0 => Ok(()),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            error => Err(error),
        },
    }
}

fn write_answer(connection: &mut TcpStream, answer: &Answer) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {} \r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\nCache-Control: no-store\r\n\
         Content-Security-Policy: {}\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\nX-Frame-Options: DENY\r\n\r\n",
        answer.status,
        answer.media_type,
        answer.body.len(),
        answer.policy
    );
    let deadline = Instant::now() + WRITE_TIMEOUT;
    for block in [head.as_bytes()].into_iter().chain(answer.body.chunks(64 * 1024)) {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        connection.set_write_timeout(Some(left))?;
        connection.write_all(block)?;
    }
    connection.flush()
}
