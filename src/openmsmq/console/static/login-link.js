// The secret of a login link is in its fragment, which browsers do not send. Remove it from the address, and post it.
"use strict";
const form = document.getElementById("login-link");
const secret = location.hash.slice(1);
history.replaceState(null, "", location.pathname);
if (secret) {
  form.elements.secret.value = secret;
  form.querySelector("button").disabled = false;
  form.submit();
}
