filedesc://none.arc 0.0.0.0 20260504060000 text/plain 76
1 0 InternetArchive
URL IP-address Archive-date Content-type Archive-length

dns:tern.example 192.0.2.1 20260504060000 text/dns 9
192.0.2.1
https://tern.example/ 192.0.2.1 20260504060000 text/html 245
HTTP/1.1 200 said
Content-Type: text/html

<a href="https://tern.example/old">to</a><a href="https://tern.example/map?at=1,2&amp;name=%22north%22">to</a><a href="https://tern.example/birds.pdf">to</a><a href="https://tern.example/gone">to</a>
https://tern.example/old 192.0.2.1 20260504060100 no-type 57
HTTP/1.1 301 said
Location: https://tern.example/new


https://tern.example/new 192.0.2.1 20260504060200 text/html 84
HTTP/1.1 200 said
Content-Type: text/html

<a href="https://tern.example/">to</a>
https://tern.example/map?at=1,2&name=%22north%22 192.0.2.1 20260504060300 text/html 46
HTTP/1.1 200 said
Content-Type: text/html


https://tern.example/birds.pdf 192.0.2.1 20260504060400 application/pdf 52
HTTP/1.1 200 said
Content-Type: application/pdf


https://tern.example/gone 192.0.2.1 20260504060500 text/html 46
HTTP/1.1 404 said
Content-Type: text/html


https://tern.example/same 192.0.2.1 20260504060800 no-type 21
HTTP/1.1 304 said


