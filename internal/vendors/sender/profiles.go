package sender

import (
	"crypto/sha1" //nolint:gosec // what these vendors sign with
	"crypto/sha256"
)

const (
	formType = "application/x-www-form-urlencoded"
	nobody   = "Ada Example"
)

// profiles is how each vendor sends. The payloads are made up in the vendors'
// shapes: nothing in them belongs to anybody.
var profiles = map[string]profile{
	"asana": {sign: body("X-Hook-Signature", "", sha256.New, inHex), events: []event{
		{name: "task.changed", body: `{"events":[{"user":{"gid":"1001","resource_type":"user"},"created_at":"{iso}","action":"changed","resource":{"gid":"2002","resource_type":"task"},"parent":null,"change":{"field":"name","action":"changed"}}]}`},
		{name: "heartbeat", body: `{"events":[]}`},
		{name: "x-hook-secret", unsigned: true, header: []string{"X-Hook-Secret", "sample-{id}"}, body: `{}`},
	}},
	"bitbucket": {sign: body("X-Hub-Signature", "sha256=", sha256.New, inHex), events: []event{
		{name: "repo:push", header: []string{"X-Event-Key", "{event}", "X-Request-UUID", "{id}", "X-Attempt-Number", "1"}, body: `{"push":{"changes":[{"new":{"type":"branch","name":"main"},"closed":false}]},"repository":{"full_name":"example/bell","type":"repository"},"actor":{"display_name":"` + nobody + `"}}`},
		{name: "pullrequest:created", header: []string{"X-Event-Key", "{event}", "X-Request-UUID", "{id}", "X-Attempt-Number", "1"}, body: `{"pullrequest":{"id":7,"title":"Ring twice","state":"OPEN"},"repository":{"full_name":"example/bell"}}`},
	}},
	"box": {sign: box, events: []event{
		{name: "FILE.UPLOADED", body: `{"type":"webhook_event","id":"{id}","created_at":"{iso}","trigger":"{event}","webhook":{"id":"11","type":"webhook"},"source":{"id":"22","type":"file","name":"bell.txt"}}`},
		{name: "FILE.DELETED", body: `{"type":"webhook_event","id":"{id}","created_at":"{iso}","trigger":"{event}","webhook":{"id":"11","type":"webhook"},"source":{"id":"22","type":"file"}}`},
	}},
	"calendly": {sign: stamped("Calendly-Webhook-Signature", "t", ".", ",", "v1"), events: []event{
		{name: "invitee.created", body: `{"event":"{event}","created_at":"{iso}","payload":{"uri":"https://api.calendly.com/scheduled_events/E1/invitees/{id}","name":"` + nobody + `","status":"active"}}`},
		{name: "invitee.canceled", body: `{"event":"{event}","created_at":"{iso}","payload":{"uri":"https://api.calendly.com/scheduled_events/E1/invitees/{id}","name":"` + nobody + `","status":"canceled"}}`},
	}},
	"cloudevents": {events: []event{
		{name: "binary", header: []string{"ce-specversion", "1.0", "ce-id", "{id}", "ce-source", "/bells/north", "ce-type", "com.example.rung"}, body: `{"rung":1}`},
		{name: "structured", contentType: "application/cloudevents+json", body: `{"specversion":"1.0","id":"{id}","source":"/bells/north","type":"com.example.rung","time":"{iso}","data":{"rung":1}}`},
		{name: "validation", method: "OPTIONS", header: []string{"WebHook-Request-Origin", "events.example.com", "WebHook-Request-Rate", "120"}},
	}},
	"companycam": {sign: body("X-CompanyCam-Signature", "", sha1.New, inBase64), events: []event{
		{name: "photo.created", body: `{"event_type":"{event}","created_at":{unix},"payload":{"photo":{"id":"{id}","project_id":"77"}},"webhook_id":"5"}`},
	}},
	"convoy": {sign: body("X-Convoy-Signature", "", sha256.New, inHex), events: []event{
		{name: "charge.success", header: []string{"X-Convoy-Event-ID", "{id}"}, body: `{"event":"{event}","amount":1000,"currency":"EUR"}`},
	}},
	"convoy-advanced": {sign: stamped("X-Convoy-Signature", "t", ",", ",", "v1"), events: []event{
		{name: "charge.success", header: []string{"X-Convoy-Event-ID", "{id}"}, body: `{"event":"{event}","amount":1000,"currency":"EUR"}`},
	}},
	"discord": {key: keyEd25519, sign: discord, events: []event{
		{name: "APPLICATION_COMMAND", body: `{"id":"{id}","application_id":"300","type":2,"token":"sample","data":{"id":"1","name":"ring","type":1},"guild_id":"400","channel_id":"500"}`},
		{name: "APPLICATION_AUTHORIZED", body: `{"version":1,"application_id":"300","type":1,"event":{"type":"{event}","timestamp":"{iso}","data":{"integration_type":1,"user":{"id":"{id}"},"scopes":["applications.commands"]}}}`},
		{name: "ping", body: `{"id":"{id}","application_id":"300","type":1}`},
		{name: "webhook-ping", body: `{"version":1,"application_id":"300","type":0}`},
	}},
	"dropbox": {sign: body("X-Dropbox-Signature", "", sha256.New, inHex), events: []event{
		{name: "file_change", body: `{"list_folder":{"accounts":["dbid:{id}"]},"delta":{"users":[1]}}`},
		{name: "challenge", method: "GET", query: "challenge=sample-{unix}", unsigned: true},
	}},
	"eventgrid": {events: []event{
		{name: "Microsoft.Storage.BlobCreated", header: []string{"aeg-event-type", "Notification"}, body: `[{"id":"{id}","eventType":"{event}","subject":"/blobs/bell.txt","eventTime":"{iso}","data":{"api":"PutBlob"},"dataVersion":"1","metadataVersion":"1","topic":"/example"}]`},
		{name: "validation", header: []string{"aeg-event-type", "SubscriptionValidation"}, body: `[{"id":"{id}","topic":"/example","subject":"","eventType":"Microsoft.EventGrid.SubscriptionValidationEvent","eventTime":"{iso}","data":{"validationCode":"sample-{unix}"},"dataVersion":"1","metadataVersion":"1"}]`},
	}},
	"github": {sign: body("X-Hub-Signature-256", "sha256=", sha256.New, inHex), events: []event{
		{name: "push", header: githubHeaders, body: `{"ref":"refs/heads/main","before":"0000000000000000000000000000000000000000","after":"1111111111111111111111111111111111111111","repository":{"id":1,"full_name":"example/bell","private":false},"pusher":{"name":"ada"},"commits":[{"id":"1111111111111111111111111111111111111111","message":"Ring twice","timestamp":"{iso}"}]}`},
		{name: "issues", header: githubHeaders, body: `{"action":"opened","issue":{"number":7,"title":"The bell does not ring","state":"open"},"repository":{"id":1,"full_name":"example/bell"},"sender":{"login":"ada"}}`},
		{name: "pull_request", header: githubHeaders, body: `{"action":"opened","number":8,"pull_request":{"id":80,"title":"Ring twice","state":"open","merged":false},"repository":{"id":1,"full_name":"example/bell"},"sender":{"login":"ada"}}`},
		{name: "ping", header: githubHeaders, body: `{"zen":"Keep it logically awesome.","hook_id":1,"hook":{"type":"Repository","id":1,"events":["push"]}}`},
	}},
	"gitlab": {sign: token("X-Gitlab-Token"), events: []event{
		{name: "Push Hook", header: []string{"X-Gitlab-Event", "{event}", "X-Gitlab-Event-UUID", "{id}", "Idempotency-Key", "{id}"}, body: `{"object_kind":"push","ref":"refs/heads/main","user_name":"` + nobody + `","project":{"id":1,"path_with_namespace":"example/bell"},"total_commits_count":1}`},
		{name: "Issue Hook", header: []string{"X-Gitlab-Event", "{event}", "X-Gitlab-Event-UUID", "{id}", "Idempotency-Key", "{id}"}, body: `{"object_kind":"issue","object_attributes":{"iid":7,"title":"The bell does not ring","action":"open"},"project":{"id":1}}`},
	}},
	"google-channel": {sign: token("X-Goog-Channel-Token"), events: []event{
		{name: "change", header: []string{"X-Goog-Channel-ID", "{id}", "X-Goog-Resource-State", "exists", "X-Goog-Message-Number", "1"}},
	}},
	"google-pubsub": {key: keyRSA, sign: googlePubsub, events: []event{
		{name: "message", body: `{"message":{"data":"eyJydW5nIjoxfQ==","messageId":"{id}","publishTime":"{iso}","attributes":{"bell":"north"}},"subscription":"projects/example/subscriptions/bells"}`},
	}},
	"hubspot": {sign: hubspot, events: []event{
		{name: "contact.creation", body: `[{"eventId":{unix},"subscriptionId":12,"portalId":62515,"occurredAt":{ms},"subscriptionType":"{event}","attemptNumber":0,"objectId":123}]`},
		{name: "contact.propertyChange", body: `[{"eventId":{unix},"subscriptionId":13,"portalId":62515,"occurredAt":{ms},"subscriptionType":"{event}","attemptNumber":0,"objectId":123,"propertyName":"firstname","propertyValue":"Ada"}]`},
	}},
	"intercom": {sign: body("X-Hub-Signature", "sha1=", sha1.New, inHex), events: []event{
		{name: "conversation.user.created", body: `{"type":"notification_event","id":"notif_{id}","topic":"{event}","created_at":{unix},"data":{"item":{"type":"conversation","id":"9"}}}`},
	}},
	"linear": {sign: body("Linear-Signature", "", sha256.New, inHex), events: []event{
		{name: "Issue", header: []string{"Linear-Event", "{event}", "Linear-Delivery", "{id}"}, body: `{"action":"create","type":"{event}","createdAt":"{iso}","data":{"id":"i-1","title":"The bell does not ring"},"webhookTimestamp":{ms},"webhookId":"w-1"}`},
		{name: "Comment", header: []string{"Linear-Event", "{event}", "Linear-Delivery", "{id}"}, body: `{"action":"create","type":"{event}","createdAt":"{iso}","data":{"id":"c-1","body":"It rings here."},"webhookTimestamp":{ms},"webhookId":"w-1"}`},
	}},
	"mailgun": {sign: mailgun, events: []event{
		{name: "delivered", body: `{"signature":{"timestamp":"{unix}","token":"{token}","signature":"{signature}"},"event-data":{"event":"{event}","id":"{id}","timestamp":{unix}.5,"recipient":"ada@example.com"}}`},
		{name: "failed", body: `{"signature":{"timestamp":"{unix}","token":"{token}","signature":"{signature}"},"event-data":{"event":"{event}","id":"{id}","severity":"permanent","recipient":"ada@example.com"}}`},
		{name: "inbound", contentType: formType, body: `recipient=bell%40example.com&sender=ada%40example.com&subject=Ring&body-plain=Please+ring.&timestamp={unix}&token={token}&signature={signature}`},
	}},
	"meta": {sign: body("X-Hub-Signature-256", "sha256=", sha256.New, inHex), events: []event{
		{name: "page.feed", body: `{"object":"page","entry":[{"id":"10","time":{unix},"changes":[{"field":"feed","value":{"item":"post","verb":"add","message":"\u00e4\u00f6\u00fc rings"}}]}]}`},
		{name: "whatsapp.messages", body: `{"object":"whatsapp_business_account","entry":[{"id":"20","changes":[{"field":"messages","value":{"messaging_product":"whatsapp","messages":[{"from":"15550100","id":"wamid.{id}","timestamp":"{unix}","type":"text","text":{"body":"ring"}}]}}]}]}`},
		{name: "verification", method: "GET", query: "hub.mode=subscribe&hub.verify_token=sample&hub.challenge={unix}", unsigned: true},
	}},
	"monday": {sign: monday, events: []event{
		{name: "create_item", body: `{"event":{"type":"{event}","triggerUuid":"{id}","boardId":1,"pulseId":2,"pulseName":"Ring twice"}}`},
		{name: "challenge", unsigned: true, body: `{"challenge":"sample-{unix}"}`},
	}},
	"msgraph": {sign: msgraph, events: []event{
		{name: "message.created", body: `{"value":[{"subscriptionId":"s-1","clientState":"{clientState}","changeType":"created","resource":"users/u-1/messages/{id}","resourceData":{"@odata.type":"#Microsoft.Graph.Message","@odata.etag":"W/\"{id}\"","id":"{id}"},"tenantId":"t-1"}]}`},
		{name: "subscription.removed", body: `{"value":[{"subscriptionId":"s-1","clientState":"{clientState}","lifecycleEvent":"subscriptionRemoved","tenantId":"t-1"}]}`},
		{name: "validation", query: "validationToken=Validation%3A+sample+{unix}", contentType: "text/plain; charset=utf-8", unsigned: true},
	}},
	"okta": {events: []event{
		{name: "user.lifecycle.create", body: `{"eventType":"com.okta.event_hook","eventId":"{id}","eventTime":"{iso}","data":{"events":[{"eventType":"{event}","uuid":"{id}"}]}}`},
		{name: "verification", method: "GET", header: []string{"X-Okta-Verification-Challenge", "sample-{unix}"}},
	}},
	"paddle": {sign: stamped("Paddle-Signature", "ts", ":", ";", "h1"), events: []event{
		{name: "transaction.completed", body: `{"event_id":"evt_{id}","event_type":"{event}","occurred_at":"{iso}","notification_id":"ntf_{id}","data":{"id":"txn_1","status":"completed","currency_code":"EUR"}}`},
		{name: "subscription.created", body: `{"event_id":"evt_{id}","event_type":"{event}","occurred_at":"{iso}","notification_id":"ntf_{id}","data":{"id":"sub_1","status":"active"}}`},
	}},
	"pagerduty": {sign: pagerduty, events: []event{
		{name: "incident.triggered", header: []string{"X-Webhook-Subscription", "s-1"}, body: `{"event":{"id":"{id}","event_type":"{event}","resource_type":"incident","occurred_at":"{iso}","data":{"id":"P1","type":"incident","title":"The bell is silent"}}}`},
	}},
	"paypal": {key: keyRSA, sign: paypal, events: []event{
		{name: "PAYMENT.CAPTURE.COMPLETED", body: `{"id":"WH-{id}","event_version":"1.0","create_time":"{iso}","resource_type":"capture","event_type":"{event}","resource":{"id":"1","amount":{"currency_code":"EUR","value":"10.00"}}}`},
	}},
	"paystack": {sign: paystack(), events: []event{
		{name: "charge.success", body: `{"event":"{event}","data":{"id":{unix},"reference":"{id}","amount":1000,"currency":"NGN"}}`},
	}},
	"postmark": {key: keyBasic, sign: basic, events: []event{
		{name: "Delivery", body: `{"RecordType":"{event}","MessageID":"{id}","Recipient":"ada@example.com","DeliveredAt":"{iso}","Metadata":{}}`},
		{name: "Bounce", body: `{"RecordType":"{event}","ID":{unix},"Type":"HardBounce","Email":"ada@example.com","BouncedAt":"{iso}"}`},
	}},
	"razorpay": {sign: body("X-Razorpay-Signature", "", sha256.New, inHex), events: []event{
		{name: "payment.captured", header: []string{"X-Razorpay-Event-Id", "{id}"}, body: `{"entity":"event","event":"{event}","created_at":{unix},"payload":{"payment":{"entity":{"id":"pay_1","amount":1000}}}}`},
	}},
	"ringcentral": {sign: token("Verification-Token"), events: []event{
		{name: "message-store", body: `{"uuid":"{id}","event":"/restapi/v1.0/account/1/extension/2/message-store","timestamp":"{iso}","subscriptionId":"s-1","body":{"changes":[{"type":"SMS","newCount":1}]}}`},
		{name: "validation", unsigned: true, header: []string{"Validation-Token", "sample-{id}"}},
	}},
	"salesforce": {events: []event{
		{name: "notifications", contentType: "text/xml; charset=utf-8", header: []string{"SOAPAction", `""`}, body: `<?xml version="1.0" encoding="UTF-8"?><soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/"><soapenv:Body><notifications xmlns="http://soap.sforce.com/2005/09/outbound"><OrganizationId>00D000000000001</OrganizationId><ActionId>04k000000000001</ActionId><SessionId>sample</SessionId><Notification><Id>{id}</Id><sObject xmlns:sf="urn:sobject.enterprise.soap.sforce.com"><sf:Id>500000000000001</sf:Id></sObject></Notification></notifications></soapenv:Body></soapenv:Envelope>`},
	}},
	"sendgrid": {key: keyECDSA, sign: sendgrid, events: []event{
		{name: "delivered", body: `[{"email":"ada@example.com","timestamp":{unix},"event":"{event}","sg_event_id":"{id}","sg_message_id":"m-1"}]` + "\r\n"},
		{name: "bounce", body: `[{"email":"ada@example.com","timestamp":{unix},"event":"{event}","reason":"no such bell","sg_event_id":"{id}","sg_message_id":"m-1"}]` + "\r\n"},
	}},
	"sentry": {sign: body("Sentry-Hook-Signature", "", sha256.New, inHex), events: []event{
		{name: "issue", header: []string{"Sentry-Hook-Resource", "{event}", "Request-ID", "{id}", "Sentry-Hook-Timestamp", "{unix}"}, body: `{"action":"created","data":{"issue":{"id":"1","title":"The bell is silent"}},"installation":{"uuid":"i-1"}}`},
	}},
	"shopify": {sign: body("X-Shopify-Hmac-SHA256", "", sha256.New, inBase64), events: []event{
		{name: "orders/create", header: shopifyHeaders, body: `{"id":820982911946154508,"email":"ada@example.com","created_at":"{iso}","total_price":"19.00","currency":"EUR","line_items":[{"id":866550311766439020,"title":"Bell","quantity":1}]}`},
		{name: "products/update", header: shopifyHeaders, body: `{"id":788032119674292922,"title":"Bell","status":"active","updated_at":"{iso}"}`},
		{name: "app/uninstalled", header: shopifyHeaders, body: `{"id":548380009,"name":"Bells","domain":"bells.example.com"}`},
	}},
	"slack": {sign: v0("X-Slack-Signature", "X-Slack-Request-Timestamp"), events: []event{
		{name: "app_mention", body: `{"token":"sample","team_id":"T1","api_app_id":"A1","type":"event_callback","event_id":"Ev{id}","event_time":{unix},"event":{"type":"app_mention","user":"U1","text":"ring","channel":"C1","ts":"{unix}.000100"}}`},
		{name: "message", body: `{"token":"sample","team_id":"T1","api_app_id":"A1","type":"event_callback","event_id":"Ev{id}","event_time":{unix},"event":{"type":"message","channel_type":"channel","user":"U1","text":"ring","channel":"C1","ts":"{unix}.000100"}}`},
		{name: "slash_command", contentType: formType, body: `token=sample&team_id=T1&channel_id=C1&user_id=U1&command=%2Fring&text=twice&response_url=https%3A%2F%2Fhooks.slack.example%2F1&trigger_id={id}`},
		{name: "block_actions", contentType: formType, body: `payload=%7B%22type%22%3A%22block_actions%22%2C%22token%22%3A%22sample%22%2C%22user%22%3A%7B%22id%22%3A%22U1%22%7D%2C%22actions%22%3A%5B%7B%22action_id%22%3A%22ring%22%7D%5D%7D`},
		{name: "url_verification", body: `{"token":"sample","challenge":"sample-{unix}","type":"{event}"}`},
	}},
	"sns": {key: keyRSA, sign: sns, events: []event{
		{name: "Notification", contentType: "text/plain; charset=UTF-8", body: `{"Type":"Notification","MessageId":"{id}","TopicArn":"arn:aws:sns:us-east-1:000000000000:bells","Subject":"rung","Message":"{\"rung\":1}","Timestamp":"{iso}"}`},
		{name: "SubscriptionConfirmation", contentType: "text/plain; charset=UTF-8", body: `{"Type":"SubscriptionConfirmation","MessageId":"{id}","TopicArn":"arn:aws:sns:us-east-1:000000000000:bells","Message":"confirm","Timestamp":"{iso}","Token":"sample","SubscribeURL":"https://sns.us-east-1.amazonaws.com/?Action=ConfirmSubscription&TopicArn=arn:aws:sns:us-east-1:000000000000:bells&Token=sample"}`},
	}},
	"square": {sign: square, events: []event{
		{name: "payment.created", body: `{"merchant_id":"M1","type":"{event}","event_id":"{id}","created_at":"{iso}","data":{"type":"payment","id":"p-1","object":{"note":"<bell> & >rope<"}}}`},
		{name: "order.updated", body: `{"merchant_id":"M1","type":"{event}","event_id":"{id}","created_at":"{iso}","data":{"type":"order","id":"o-1"}}`},
	}},
	"standard-webhooks": {key: keyStandard, sign: standard("webhook-id", "webhook-timestamp", "webhook-signature"), events: []event{
		{name: "bell.rung", body: `{"type":"{event}","timestamp":"{iso}","data":{"bell":"north","times":2}}`},
	}},
	"statsig": {sign: v0("X-Statsig-Signature", "X-Statsig-Request-Timestamp"), events: []event{
		{name: "config_change", body: `{"data":[{"eventName":"statsig::config_change","timestamp":{ms},"metadata":{"name":"ring_twice","type":"Gate"}}]}`},
		{name: "url_verification", unsigned: true, body: `{"data":{"event":"url_verification","verification_code":"sample-{unix}"}}`},
	}},
	"stripe": {sign: stamped("Stripe-Signature", "t", ".", ",", "v1"), events: []event{
		{name: "payment_intent.succeeded", body: `{"id":"evt_{id}","object":"event","api_version":"2024-06-20","created":{unix},"type":"{event}","livemode":false,"data":{"object":{"id":"pi_1","object":"payment_intent","amount":1900,"currency":"eur","status":"succeeded"}}}`},
		{name: "customer.created", body: `{"id":"evt_{id}","object":"event","created":{unix},"type":"{event}","livemode":false,"data":{"object":{"id":"cus_1","object":"customer","email":"ada@example.com"}}}`},
		{name: "invoice.paid", body: `{"id":"evt_{id}","object":"event","created":{unix},"type":"{event}","livemode":false,"data":{"object":{"id":"in_1","object":"invoice","amount_paid":1900,"currency":"eur"}}}`},
		{name: "checkout.session.completed", body: `{"id":"evt_{id}","object":"event","created":{unix},"type":"{event}","livemode":false,"data":{"object":{"id":"cs_1","object":"checkout.session","payment_status":"paid"}}}`},
	}},
	"surveymonkey": {sign: body("Sm-Signature", "", sha1.New, inBase64), events: []event{
		{name: "response_completed", body: `{"name":"bells","event_id":"{id}","event_type":"{event}","event_datetime":"{iso}","object_type":"response","object_id":"1"}`},
		{name: "probe", method: "HEAD", unsigned: true},
	}},
	"svix": {key: keyStandard, sign: standard("svix-id", "svix-timestamp", "svix-signature"), events: []event{
		{name: "bell.rung", body: `{"type":"{event}","timestamp":"{iso}","data":{"bell":"north","times":2}}`},
	}},
	"telegram": {sign: token("X-Telegram-Bot-Api-Secret-Token"), events: []event{
		{name: "message", body: `{"update_id":9007199254740993,"message":{"message_id":1,"date":{unix},"chat":{"id":5000000001,"type":"private"},"from":{"id":5000000001,"is_bot":false,"first_name":"Ada"},"text":"ring"}}`},
		{name: "callback_query", body: `{"update_id":{unix},"callback_query":{"id":"{id}","from":{"id":5000000001,"is_bot":false,"first_name":"Ada"},"data":"ring"}}`},
	}},
	"trello": {sign: trello, events: []event{
		{name: "updateCard", body: `{"action":{"id":"{id}","type":"{event}","date":"{iso}","data":{"card":{"id":"c-1","name":"Ring twice"}}},"model":{"id":"b-1"}}`},
		{name: "probe", method: "HEAD", unsigned: true},
	}},
	"twilio": {sign: twilio, events: []event{
		{name: "message.received", contentType: formType, body: `MessageSid=SM{id}&AccountSid=AC1&From=%2B15550100&To=%2B15550101&Body=Please+ring+%26+wait&NumMedia=0`},
		{name: "message.status", contentType: formType, body: `MessageSid=SM{id}&MessageStatus=delivered&AccountSid=AC1&From=%2B15550100&To=%2B15550101`},
		{name: "call.status", contentType: formType, body: `CallSid=CA{id}&CallStatus=completed&AccountSid=AC1&From=%2B15550100&To=%2B15550101&CallDuration=12`},
		{name: "conversation.json", body: `{"EventType":"onMessageAdded","ConversationSid":"CH1","Body":"ring"}`},
	}},
	"twitch": {sign: twitch, events: []event{
		{name: "channel.follow", header: []string{"Twitch-Eventsub-Message-Type", "notification", "Twitch-Eventsub-Subscription-Type", "{event}"}, body: `{"subscription":{"id":"s-1","type":"{event}","version":"2","status":"enabled"},"event":{"user_id":"1","user_name":"ada","broadcaster_user_id":"2","followed_at":"{iso}"}}`},
		{name: "webhook_callback_verification", header: []string{"Twitch-Eventsub-Message-Type", "{event}"}, body: `{"challenge":"sample-{unix}","subscription":{"id":"s-1","status":"webhook_callback_verification_pending","type":"channel.follow","version":"2"}}`},
		{name: "revocation", header: []string{"Twitch-Eventsub-Message-Type", "{event}"}, body: `{"subscription":{"id":"s-1","status":"authorization_revoked","type":"channel.follow","version":"2"}}`},
	}},
	"typeform": {sign: body("Typeform-Signature", "sha256=", sha256.New, inBase64), events: []event{
		{name: "form_response", body: `{"event_id":"{id}","event_type":"{event}","form_response":{"form_id":"f-1","token":"r-1","submitted_at":"{iso}","answers":[{"type":"text","text":"It rings.","field":{"id":"q-1"}}]}}`},
	}},
	"vercel": {sign: body("X-Vercel-Signature", "", sha1.New, inHex), events: []event{
		{name: "deployment.succeeded", body: `{"id":"{id}","type":"{event}","createdAt":{ms},"payload":{"deployment":{"id":"dpl_1","name":"bells"}}}`},
	}},
	"websub": {sign: body("X-Hub-Signature", "sha1=", sha1.New, inHex), events: []event{
		{name: "update", contentType: "application/atom+xml", header: []string{"Link", `<https://hub.example.com/>; rel="hub", <https://example.com/feed.xml>; rel="self"`}, body: `<?xml version="1.0" encoding="UTF-8"?><feed xmlns="http://www.w3.org/2005/Atom"><title>Bells</title><entry><id>urn:uuid:{id}</id><title>Rung twice</title><updated>{iso}</updated></entry></feed>`},
		{name: "verification", method: "GET", unsigned: true, query: "hub.mode=subscribe&hub.topic=https%3A%2F%2Fexample.com%2Ffeed.xml&hub.challenge=sample-{unix}&hub.verify_token=sample&hub.lease_seconds=864000"},
	}},
	"woocommerce": {sign: body("X-WC-Webhook-Signature", "", sha256.New, inBase64), events: []event{
		{name: "order.created", header: []string{"X-WC-Webhook-Topic", "{event}", "X-WC-Webhook-Delivery-ID", "{id}", "X-WC-Webhook-Source", "https://bells.example.com/"}, body: `{"id":727,"status":"processing","currency":"EUR","total":"19.00"}`},
		{name: "ping", contentType: formType, unsigned: true, body: `webhook_id=1`},
	}},
	"x": {sign: body("X-Twitter-Webhooks-Signature", "sha256=", sha256.New, inBase64), events: []event{
		{name: "tweet_create_events", body: `{"for_user_id":"1","tweet_create_events":[{"id_str":"{id}","created_at":"{iso}","text":"ring","user":{"id_str":"2"}}]}`},
		{name: "crc", method: "GET", query: "crc_token={id}", unsigned: true},
	}},
	"xero": {sign: body("X-Xero-Signature", "", sha256.New, inBase64), events: []event{
		{name: "INVOICE.CREATE", body: `{"events":[{"resourceUrl":"https://api.xero.example/Invoices/1","resourceId":"{id}","eventDateUtc":"{iso}","eventType":"CREATE","eventCategory":"INVOICE","tenantId":"t-1"}],"firstEventSequence":1,"lastEventSequence":1,"entropy":"SAMPLE"}`},
		{name: "intent-to-receive", body: `{"events":[],"firstEventSequence":0,"lastEventSequence":0,"entropy":"SAMPLE"}`},
	}},
	"zendesk": {sign: zendesk, events: []event{
		{name: "ticket.created", header: []string{"X-Zendesk-Webhook-Id", "w-1", "X-Zendesk-Webhook-Invocation-Id", "{id}"}, body: `{"type":"zen:event-type:{event}","id":"{id}","time":"{iso}","detail":{"id":"1","subject":"The bell does not ring"}}`},
	}},
	"zoom": {sign: v0("x-zm-signature", "x-zm-request-timestamp"), events: []event{
		{name: "meeting.started", body: `{"event":"{event}","event_ts":{ms},"payload":{"account_id":"A1","object":{"id":"{id}","topic":"Ringing","type":2}}}`},
		{name: "meeting.ended", body: `{"event":"{event}","event_ts":{ms},"payload":{"account_id":"A1","object":{"id":"{id}","topic":"Ringing","type":2}}}`},
		{name: "endpoint.url_validation", body: `{"payload":{"plainToken":"sample{unix}"},"event_ts":{ms},"event":"{event}"}`},
	}},
}

var githubHeaders = []string{"User-Agent", "GitHub-Hookshot/tocsin", "X-GitHub-Event", "{event}", "X-GitHub-Delivery", "{id}", "X-GitHub-Hook-ID", "1"}

var shopifyHeaders = []string{
	"X-Shopify-Topic", "{event}", "X-Shopify-Webhook-Id", "{id}", "X-Shopify-Event-Id", "{id}", "X-Shopify-Shop-Domain", "bells.example.com",
}
